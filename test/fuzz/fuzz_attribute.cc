// SPDX-License-Identifier: BSD-3-Clause
//
// What may the attribute `user.ato` say? Any bytes; another pairing; a folder anywhere.
//
// Input: the world (world.cc), uses (life.cc), u8 repairs, u16 how often the folder's last byte is
// repeated; then what of it is not repaired, in this order: 5 bytes `ato1 `, 32 of id, 1 blank, u8 n and
// n bytes inode, 1 blank, and the rest: folder.
#include "life.h"

#include <cstdlib>

extern "C" {
#include "reflection/pairing/identity.h"
}

namespace fuzz
{

enum : uint8_t { HEAD = 1, IDENTITY = 2, INODE_NUMBER = 4, FOLDER = 8, BLANKS = 16, OTHERS = 32 };

static std::string hex(const Bytes &id)
{
    static const char digits[] = "0123456789abcdef";
    std::string text;
    for (unsigned char byte : id)
        text += {digits[byte >> 4], digits[byte & 15]};
    return text;
}

static std::string text(const Bytes &b)
{
    return std::string(b.begin(), b.end());
}

// The parser by itself, on a block that ends where the value does.
static void check_parser(const std::string &value)
{
    static struct attribute a;
    Attribute own;
    char *block = static_cast<char *>(malloc(value.size() ? value.size() : 1));
    memcpy(block, value.data(), value.size());
    bool good = attribute_parse(block, value.size(), &a);
    free(block);
    if (good != parse(value, own))
        wrong("attribute_parse says %d of '%s'", good, value.c_str());
    if (good &&
        (a.inode != own.inode || own.folder != a.folder || memcmp(a.id, own.id.data(), 16) != 0))
        wrong("attribute_parse takes '%s' for something else", value.c_str());
}

static Seed with(const char *name, uint64_t shape, uint64_t uses, uint64_t repairs,
                 uint64_t repeats = 0)
{
    return Seed(name).u16(shape).u8(uses).u8(repairs).u16(repeats);
}

std::vector<Seed> seeds()
{
    constexpr uint8_t all_but_folder = HEAD | IDENTITY | INODE_NUMBER | BLANKS;
    return {
        with("right", 0, 0, all_but_folder | FOLDER),
        with("of-the-other", 1, 0, all_but_folder | FOLDER | OTHERS),
        with("of-the-other-preferred", 1, 4, all_but_folder | FOLDER | OTHERS),
        with("no-head", 0, 0, 0xfe).text("ato2 "),
        with("other-id", 0, 0, 0xdd).text("00112233445566778899aabbccddeeff"),
        with("other-id-preferred", 0, 4, 0xdd).text("00112233445566778899aabbccddeeff"),
        with("no-digits", 0, 0, 0xdd).text("00112233445566778899aabbccddeefg"),
        with("other-inode", 0, 0, 0xdb).u8(3).text("123"),
        with("other-inode-preferred", 0, 4, 0xdb).u8(3).text("123"),
        with("inode-too-large", 0, 0, 0xdb).u8(20).text("18446744073709551616"),
        with("largest-inode", 0, 0, 0xdb).u8(20).text("18446744073709551615"),
        with("no-inode", 0, 0, 0xdb),
        with("no-blank", 0, 0, 0xcf).text(".:"),
        with("folder-elsewhere", 0, 0, all_but_folder).text("/nowhere/at/all"),
        with("folder-moved", 0, 0, all_but_folder).text("/nowhere//.ato"),
        with("folder-of-slashes", 0, 0, all_but_folder).text("//"),
        with("folder-root", 0, 0, all_but_folder).text("/"),
        with("folder-here", 0, 0, all_but_folder).text("."),
        with("folder-up", 0, 0, all_but_folder).text("../../.."),
        with("folder-a-file", 0, 0, all_but_folder).text("other"),
        with("folder-a-device", 0, 0, all_but_folder).text("/dev/null"),
        with("no-folder", 0, 0, all_but_folder),
        with("folder-of-nul", 0, 0, all_but_folder).text(std::string("a\0b", 3)),
        with("folder-to-be-escaped", 0, 0, all_but_folder).text("\x1b[31m\xff\xc2\x80"),
        with("long-folder", 0, 0, all_but_folder, 4000).text("a"),
        with("long-name", 0, 0, all_but_folder, 300).text("a"),
        with("longest-folder", 0, 0, all_but_folder, 4094).text("/"),
        with("too-long-a-folder", 0, 0, all_but_folder, 4095).text("a"),
        with("long-absolute-folder", 0, 0, all_but_folder, 4092).text("/a"),
        with("much-too-long", 0, 0, all_but_folder, 60000).text("a"),
        with("born", 3, 0, all_but_folder | FOLDER),
        with("deployed", 2 | 8, 0, all_but_folder | FOLDER),
        with("no-manifest", 1 << 8, 0, all_but_folder | FOLDER),
        with("no-manifest-preferred", 1 << 8, 4, all_but_folder | FOLDER),
        with("nothing-repaired", 0, 0, 0).text("ato1 00112233445566778899aabbccddeeff 1 .ato"),
    };
}

} // namespace fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    using namespace fuzz;
    static World world;
    Input in(bytes, n);
    world.begin(in);
    Uses uses = uses_from(in);
    uint8_t repairs = in.u8();
    uint16_t repeats = in.u16();
    const Paired &named = repairs & OTHERS ? world.other : world.file;
    std::string value = repairs & HEAD ? "ato1 " : text(in.bytes(5));
    value += repairs & IDENTITY ? hex(named.id) : text(in.bytes(32));
    value += repairs & BLANKS ? " " : text(in.bytes(1));
    value += repairs & INODE_NUMBER ? named.name() : text(in.bytes(in.u8() % 32));
    value += repairs & BLANKS ? " " : text(in.bytes(1));
    value += repairs & FOLDER ? ".ato" : text(in.rest());
    value.append(repeats % 61000, value.back());
    check_parser(value);
    for (size_t cut = 0; cut < value.size() && cut < 70; cut++)
        check_parser(value.substr(0, cut));
    world.file.attribute = value;
    world.lay_out();
    live(world, uses);
    return 0;
}
