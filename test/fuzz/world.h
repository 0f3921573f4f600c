// SPDX-License-Identifier: BSD-3-Clause
//
// What lies on the media before the library looks? A file and its pairing as a cleanly unmapped one, a
// dead user or a cut removal left them, in memory first, where a harness edits them; then laid out as
// real files on tmpfs, anew for each input. A second file with its pairing lies beside it, whose bytes
// no step may change.
//
// Random bytes never meet a checksum, an inode number or a birth time. So a harness has edits first and
// then repairs of what guards the door, as the input says: what lies behind is fuzzed too, and what is
// not repaired as well.
#ifndef ATO_TEST_FUZZ_WORLD_H
#define ATO_TEST_FUZZ_WORLD_H

#include "format.h"

#include <map>

#include <sys/stat.h>

namespace fuzz
{

// A file: its pages that are not all zeros.
struct Image {
    mode_t type = 0; // S_IFMT bits; 0: there is none
    uint64_t size = 0;
    std::map<uint64_t, Bytes> pages;

    void write(uint64_t at, const void *bytes, size_t n);
    void set_word(uint64_t at, uint64_t value);
    uint64_t word(uint64_t at) const;
    unsigned char byte(uint64_t at) const;
    Bytes bytes(uint64_t at, size_t n) const;
};
bool operator==(const Image &a, const Image &b);

// An entry of a reflection whose word is not 0.
struct Entry {
    uint64_t place, page, word;
};
std::vector<Entry> entries_in(const Image &reflection, Format format);

Image image_at(int folder, const std::string &name);

// What is to lie in the place of a file.
enum class Kind { FILE, NONE, FOLDER, PIPE, SYMLINK, HARDLINK, EMPTY, KINDS };

// An original and what belongs to it.
struct Paired {
    std::string path, attribute; // "": it has none
    uint64_t inode = 0;
    bool has_birth = false, has_generation = false;
    int64_t birth_sec = 0;
    uint32_t birth_nsec = 0, generation = 0;
    timespec mtime = {};
    Bytes id, content; // of the original, as read(2) sees it
    Image reflection;
    Bytes manifest;
    Image
        long_lane; // of the manifest, at its place there, and how long that is with it; size 0: there is none
    Kind manifest_kind = Kind::FILE, reflection_kind = Kind::FILE;

    // Puts what belongs to this very file, or fits to what else is there, into a copy of the manifest.
    void repair(uint8_t repairs);
    Image manifest_image() const; // the whole file
    std::string name() const
    {
        return std::to_string(inode);
    }
    // By the words of the reflection: `size` bytes. No page has two.
    Bytes gathered(uint64_t size, Format format) const;
    Format format = DENSE;                  // as it was made
    void log(Image image);                  // it has this one, in domain disk
    uint64_t place_of(uint64_t page) const; // as it was made
};

enum Repair : uint8_t {
    SEAL_A = 1,
    SEAL_B = 2,
    OWN = 4,    // inode, birth time, generation, id, of both copies
    DOOR = 8,   // magic, version
    SIZES = 16, // check bits of size and growth word
    TIMES = 32, // of a clean unmap: those of the original
};

// In the first two bytes of an input (World::begin).
constexpr uint16_t TWO_CHUNKS = 0xc004, SPARSE_FILE = 0x4000, BOTH_SPARSE = 0x8000;

class World
{
  public:
    World();
    ~World();

    // New files, as the input's first bytes say (Shape in world.cc).
    void begin(Input &in);
    // All of it as files: from here on `file` and `other` are what was before the library came.
    void lay_out();

    std::string root, folder; // the folder of the originals, and .ato
    int folder_fd = -1;
    Paired file, other;

    // What is in the reflection folder.
    std::map<std::string, Image> names() const;

  private:
    void clear();
    Paired make(const std::string &name, uint64_t size, bool holes, unsigned seed);
    void pair(Paired &p, uint32_t state, uint8_t number, Format format);
    void put_file(const Paired &p, const std::string &name, Kind kind, const Image &image);
};

Image image_of(const Bytes &bytes);
std::string attribute_of(const std::string &path);
Bytes read_all(const std::string &path);

// Says what is wrong and stops the fuzzer.
[[noreturn]] void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Seeds that a harness knows; written by `PROGRAM --write-seeds FOLDER`.
std::vector<Seed> seeds();

} // namespace fuzz

#endif
