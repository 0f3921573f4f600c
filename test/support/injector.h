// SPDX-License-Identifier: BSD-3-Clause
//
// Makes a call of the library to the C library or the kernel fail. The linker leads each such
// call through here (--wrap; the names are in test/fault/meson.build). Between begin() and end() each call
// gets a name that is the same in every run, and one of them fails. Resources that the library has to give
// back (blocks of memory, address space, names of shared memory) are counted all the time.
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

// A call: its place, and its turn there.
struct Call {
    const char *name;  // as the linker knows it, "openat64"; of fcntl with its command
    uintptr_t place;   // its return address
    unsigned turn;     // at that place, from 0
    const int *errors; // plausible ones, up to 0

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
    std::vector<Call> calls; // in order; of several threads in the order of their arrival
    bool failed;             // the fault occurred
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

// The shared memory objects that this process made and that still exist.
std::vector<std::string> shared_memory_left();

} // namespace injector
} // namespace support

#endif
