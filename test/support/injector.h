// SPDX-License-Identifier: BSD-3-Clause
//
// What if a call of the library to the C library, the kernel or libpmemobj fails? Each such call is
// led through here by the linker (--wrap; the names are in test/fault/meson.build). Between begin()
// and end() each gets a name that is the same in every run, and one of them fails. What the library
// takes and has to give back (blocks of memory, address space, names of shared memory) is counted
// all the time.
#ifndef ATO_TEST_SUPPORT_INJECTOR_H
#define ATO_TEST_SUPPORT_INJECTOR_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace support
{
namespace injector
{

// A call: by whom, and which one of those that it made.
struct Call {
    const char *name;  // as the linker knows it, "openat64"; of fcntl with its command
    uintptr_t place;   // where it returns to
    unsigned turn;     // of that place, from 0
    const int *errors; // that make sense for it, up to 0

    bool operator==(const Call &other) const
    {
        return place == other.place && turn == other.turn;
    }
};

enum Reach {
    ONCE, // this call alone
    KIND, // and all later ones of its name: a disk that stays full
};

struct Fault {
    Call call;
    int error;
    Reach reach;
};

// One at a time. NULL: nothing fails.
void begin(const Fault *fault);

struct Heard {
    std::vector<Call> calls; // in order; of threads, as they came
    bool failed;             // the fault came to pass
};
Heard end();

// The place of a call, for addr2line.
uintptr_t in_program(uintptr_t place);

struct Holdings {
    size_t blocks = 0;  // of memory
    size_t address = 0; // bytes of address space, mapped

    bool operator==(const Holdings &other) const
    {
        return blocks == other.blocks && address == other.address;
    }
};
Holdings holdings();

// Of shared memory objects that this process made, those that are there still.
std::vector<std::string> shared_memory_left();

} // namespace injector
} // namespace support

#endif
