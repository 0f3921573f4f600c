#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the golden files of the on-media format.

An implementation of its own: written from the description of the format (reflection/FORMAT.md and
the comments of layout.h, manifest.h, lane.h, checksum.h), not from the C code, so that a mistake
of one is seen by the other. Run it again only when the format's version changes:

    test/data/make_golden.py          writes the files beside itself
    test/data/make_golden.py --check  exits 1 if one of them is not what it would write

Images are text: 'size N', then '@offset hex' for runs of 32 bytes that are not all zero.
"""
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1
PAGE, SLICE = 4096, 64
DENSE, SPARSE = 0, 1
PLACES = {DENSE: 512, SPARSE: 256}  # of a chunk
ENTRY = {DENSE: 8, SPARSE: 16}  # bytes of a place in the meta page
MOST_BYTES = (1 << 48) - PAGE


# ---- layout -------------------------------------------------------------------------------------

def reflected(o):
    return o + ((o // 4096) // 512 + 1) * 4096


def meta_at(form, chunk):
    return chunk * (1 + PLACES[form]) * PAGE


def refpage_at(form, place):
    return meta_at(form, place // PLACES[form]) + (1 + place % PLACES[form]) * PAGE


def word_at(place, form=DENSE):
    """The word is the last thing of its entry."""
    return meta_at(form, place // PLACES[form]) + (place % PLACES[form] + 1) * ENTRY[form] - 8


def reflection_size(original, form=DENSE):
    pages = -(-original // PAGE)
    if pages == 0:
        return 0
    if form == DENSE:
        return reflected((pages - 1) * PAGE) + PAGE
    return meta_at(form, -(-pages // PLACES[form]) + 1)


def chunks_of(form, length):
    return -(-length // meta_at(form, 1))


def is_word(form, offset, length):
    chunk, inside = divmod(offset, meta_at(form, 1))
    place = chunk * PLACES[form] + inside // ENTRY[form]
    return (inside < PAGE and word_at(place, form) == offset
            and refpage_at(form, place) + PAGE <= length)


# ---- checksum -----------------------------------------------------------------------------------

def checksum(data):
    assert len(data) % 8 == 0
    h = 0x61746F2D73756D31
    for (w,) in struct.iter_unpack('<Q', data):
        h = ((h ^ w) * 0x9FB21C651E98DF25) & MASK
        h ^= h >> 29
    return h


def layout_of_places():
    """Format 0 is dense, 1 sparse."""
    places = {0, 1, 2, 254, 255, 256, 257, 510, 511, 512, 513, 514, 1000, 1023, 1024, 1025, 1535,
              1536, 5119, 5120, 99999, 262143, 262144, 262145, (1 << 26) - 1}
    places |= {p * 7919 for p in range(1, 12)}
    far = {DENSE: {(1 << 28) - 1, 1 << 28, (1 << 36) - 2}, SPARSE: set()}
    sizes = {0, 1, 4095, 4096, 4097, 8192, 255 * 4096, 256 * 4096, 256 * 4096 + 1, 511 * 4096,
             512 * 4096 - 1, 512 * 4096, 512 * 4096 + 1, 513 * 4096, 1024 * 4096, 1024 * 4096 + 1,
             1 << 30, (1 << 30) + 1, 1 << 40, 123456789, MOST_BYTES, 5000, 2097152, 2097153,
             4194304, 4194305}
    lines = ['# format, and places of a chunk', 'chunk 0 512', 'chunk 1 256']
    for form in (DENSE, SPARSE):
        metas, lengths = (0, 1, 2, 77, 262143), set()
        lines.append('# meta <format> <chunk> <byte of the reflection>')
        lines += [f'meta {form} {c} {meta_at(form, c)}' for c in metas]
        lines.append('# word, refpage <format> <place> <byte of the reflection>')
        for p in sorted(places | far[form]):
            lines.append(f'word {form} {p} {word_at(p, form)}')
            lines.append(f'refpage {form} {p} {refpage_at(form, p)}')
        lines.append('# size <format> <bytes of the original> <bytes of the reflection>')
        lines += [f'size {form} {s} {reflection_size(s, form)}' for s in sorted(sizes)]
        for s in (0, 1, 300 * 4096, 600 * 4096):
            length = reflection_size(s, form)
            lengths |= {length, max(0, length - 1), length + 1}
        lines.append('# chunks <format> <bytes of the reflection> <that many are there, or begin>')
        lines += [f'chunks {form} {n} {chunks_of(form, n)}' for n in sorted(lengths)]
        lines.append('# is <format> <byte of the reflection> <its length> <is a word there?>')
        offsets = {0, 4, 8, 12, 16, 24, 2040, 2048, 2056, 4080, 4088, 4092, 4096, 4104, MASK - 7}
        offsets |= {meta_at(form, 1) + o for o in (0, 8, 16, 24, 4080, 4088, 4096, 8192)}
        for n in sorted(lengths):
            lines += [f'is {form} {o} {n} {int(is_word(form, o, n))}' for o in sorted(offsets)]
    return lines


def layout_table():
    lines = ['# reflected <byte of the original> <byte of the reflection>']
    offsets = set()
    for base in (0, 4096, 511 * 4096, 512 * 4096, 513 * 4096, 1023 * 4096, 1024 * 4096, 10 << 30,
                 1 << 40, (1 << 48) - 8192):
        offsets |= {base, base + 1, base + 63, base + 64, base + 4095, max(0, base - 1)}
    lines += [f'reflected {o} {reflected(o)}' for o in sorted(offsets)]
    lines += layout_of_places()
    lines.append('# checksum <n> <k> <sum of the n words i * k + 1>')
    for n, k in ((0, 0), (1, 0), (1, 5), (2, 1), (7, 123456789), (8, 0), (63, 3), (64, 1 << 40)):
        data = b''.join(struct.pack('<Q', (i * k + 1) & MASK) for i in range(n))
        lines.append(f'checksum {n} {k} {checksum(data)}')
    return '\n'.join(lines) + '\n'


# ---- manifest -----------------------------------------------------------------------------------

def record(sequence, state, known, clean=(0, 0, 0), boot=bytes(16), shm=0):
    head = b'AMANFEST'
    head += struct.pack('<II', 3, 3)                      # version, format log
    head += struct.pack('<II', 3, state)                  # domain disk
    head += struct.pack('<Q', sequence)
    head += bytes(range(16))                              # id
    head += struct.pack('<QQ', 123456789, 2049)           # inode, device
    head += struct.pack('<qII', 1700000000, 987654321, 42)  # birth, generation
    head += struct.pack('<II', known, 1024)               # known, slots
    head += struct.pack('<QqQ', *clean)                   # size, mtime
    head += boot
    head += struct.pack('<Q', shm)
    head += struct.pack('<QII16s', 18, 2, 0, b'\x01\x01')  # guard
    head += bytes(336)
    assert len(head) == 504
    return head + struct.pack('<Q', checksum(head))


def crc16(value, bits):
    crc = 0xFFFF
    for i in reversed(range(bits)):
        bit = (value >> i) & 1
        crc = ((crc << 1) ^ (0x1021 if (crc >> 15) ^ bit else 0)) & 0xFFFF
    return crc


def manifest():
    image = bytearray(12288)
    boot = bytes(range(0xF0, 0x100))
    a = record(1, 2, 3)                                    # in use
    b = record(2, 2, 7, boot=boot, shm=9)                  # in use
    a = record(3, 3, 7, clean=(20580, 1700000001, 555), boot=boot, shm=9)  # clean, over the first
    image[0:512] = a
    image[4096:4096 + 512] = b
    image[8192:8200] = struct.pack('<Q', 20580 | crc16(20580, 48) << 48)
    return bytes(image)


# ---- lanes --------------------------------------------------------------------------------------

SIZE_WORD = 1 << 49


def commit(image, at, sequence, retired, words):
    body = b''.join(struct.pack('<QQ', w, v) for w, v in words)
    line = struct.pack('<QQ', sequence, len(words)) + bytes(40)
    line += struct.pack('<Q', checksum(line + body))
    assert len(line) == 64
    image[at:at + 64] = line
    image[at + 64:at + 72] = struct.pack('<Q', retired)
    image[at + 128:at + 128 + len(body)] = body


def area():
    """Of a slot whose process died in a commit."""
    image = bytearray(16384)
    commit(image, 0, 1, 1, [(8 * i, i) for i in range(2)])                          # retired
    commit(image, 2 * 4096, 1, 0, [(word_at(i * 100), MASK - i) for i in range(247)] +
           [(SIZE_WORD, 20580 | crc16(20580, 48) << 48)])                           # full
    return bytes(image)


# ---- a reflection after some writes --------------------------------------------------------------

SIZE = 520 * PAGE + 1000  # two chunks, an odd end
WRITES = [(0, 64), (10, 30), (4000, 200), (4096, 64), (512 * PAGE - 100, 300), (64, 128),
          (520 * PAGE + 950, 50), (513 * PAGE + 1, 1), (0, 256), (10, 5), (4030, 70),
          (511 * PAGE, 64), (3 * PAGE + 64, 64), (3 * PAGE + 64, 64)]


def data(i, n):
    return bytes((i * 37 + k * 11 + 5) & 0xFF for k in range(n))


def original():
    """byte k of the original is k mod 251, written k // 64 mod 7 higher."""
    return bytearray(((k % 251) + (k // 64) % 7) & 0xFF for k in range(SIZE))


def place_in_sparse(page):
    """Any order will do: here the pages go down, from place 600 on, over two chunks."""
    return 600 - page


def reflection(form=DENSE):
    """Every write goes to the homes that the bitmap calls invalid, and flips them."""
    o = original() + bytes(-SIZE % PAGE)
    r = bytearray(reflection_size(SIZE, form))
    bitmaps = {}
    place_of = place_in_sparse if form == SPARSE else lambda page: page
    for i, (at, n) in enumerate(WRITES):
        new = data(i, n)
        first, last = at // SLICE, (at + n - 1) // SLICE
        for s in range(first, last + 1):
            page, bit = s * SLICE // PAGE, s % 64
            in_r = bitmaps.get(page, 0) >> bit & 1
            homes = (o, s * SLICE), (r, refpage_at(form, place_of(page)) + s * SLICE % PAGE)
            file, place = homes[in_r]
            content = bytearray(file[place:place + SLICE])
            for k in range(SLICE):
                if at <= s * SLICE + k < at + n:
                    content[k] = new[s * SLICE + k - at]
            file, place = homes[1 - in_r]
            file[place:place + SLICE] = content
            bitmaps[page] = bitmaps.get(page, 0) ^ 1 << bit
    for page, bitmap in bitmaps.items():
        at = word_at(place_of(page), form)
        r[at:at + 8] = struct.pack('<Q', bitmap)
        if form == SPARSE:
            r[at - 8:at] = struct.pack('<Q', page)
    if form == SPARSE:
        # Entries with bitmap 0 say nothing: of pages that have another entry, before it and behind
        # it, of pages that have none, and of pages that no file has.
        for place, page in ((0, 1), (255, 511), (256, 0), (700, 0), (701, 1), (702, 5),
                            (703, SIZE), (704, MASK)):
            at = word_at(place, form)
            assert r[at - 8:at + 8] == bytes(16)
            r[at - 8:at] = struct.pack('<Q', page)
    return bytes(o[:SIZE]), bytes(r)


# ---- the same writes, in a log ------------------------------------------------------------------

RING, SALT = 8192, 0x0123456789ABCDEF


def crc32c(data):
    crc = MASK >> 32
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ MASK >> 32


def with_sum(data, at):
    return data[:at] + struct.pack('<I', crc32c(data)) + data[at + 4:]


def log_header(edition, start):
    return with_sum(b'ATOLOG\0\0' + struct.pack('<IIQQQQQ', 1, 0, edition, SALT, RING, 0, start), 12)


def log_record(position, o, first, last):
    """Of the slices from the first to the last of the file."""
    bits = {}
    for s in range(first, last + 1):
        bits[s // 64] = bits.get(s // 64, 0) | 1 << s % 64
    table = b''.join(struct.pack('<QQ', page, which) for page, which in bits.items())
    body = table + bytes(-len(table) % 64) + bytes(o[first * SLICE:(last + 1) * SLICE])
    # Some say the size of the file, which is as it was.
    size = SIZE if first % 2 else MASK
    head = b'ATOREC\0\0' + struct.pack('<QQQQQIIQ', SALT, position, 64 + len(body), len(bits), size, 0, 0, 0)
    return with_sum(head + body, 48)


def log():
    """Of a process that died: its records go around the end of the ring, and the last one is torn."""
    o = original() + bytes(-SIZE % SLICE)
    start = position = RING - 1024
    ring = bytearray(RING)

    def append(record):
        for k, byte in enumerate(record):
            ring[(position + k) % RING] = byte

    for i, (at, n) in enumerate(WRITES):
        o[at:at + n] = data(i, n)
        record = log_record(position, o, at // SLICE, (at + n - 1) // SLICE)
        append(record)
        position += len(record)
    torn = bytearray(log_record(position, bytes(len(o)), 64, 70))
    torn[200] ^= 1
    append(torn)
    assert position + len(torn) - start <= RING
    image = bytearray(PAGE) + ring
    image[0:56] = log_header(6, start - 64 * 9)
    image[512:512 + 56] = log_header(7, start)
    return bytes(image)


def writes_table():
    lines = ['# original <bytes>', f'original {SIZE}', '# write <offset> <bytes>, in this order']
    lines += [f'write {at} {n}' for at, n in WRITES]
    return '\n'.join(lines) + '\n'


# ---- files --------------------------------------------------------------------------------------

def dump(image, base=None):
    """Lines of what is not zero, or of what differs from `base`."""
    lines = [f'size {len(image)}']
    for at in range(0, len(image), 32):
        piece = image[at:at + 32]
        if piece != (base[at:at + 32] if base else bytes(len(piece))):
            lines.append(f'@{at} {piece.hex()}')
    return '\n'.join(lines) + '\n'


def main():
    o, r = reflection()
    files = {
        'layout.golden': layout_table(),
        'manifest.golden': dump(manifest()),
        'area.golden': dump(area()),
        'writes.golden': writes_table(),
        'reflection.golden': dump(r),
        'log.golden': dump(log()),
        'sparse.golden': dump(reflection(SPARSE)[1]),
        'original.golden': '# what differs from the original as it was\n' + dump(o, original()),
    }
    bad = 0
    for name, text in files.items():
        path = os.path.join(HERE, name)
        if sys.argv[1:] == ['--check']:
            with open(path, encoding='ascii') as f:
                if f.read() != text:
                    print(f'{name} is not what the writer writes')
                    bad = 1
        else:
            with open(path, 'w', encoding='ascii') as f:
                f.write(text)
    print(len(files), 'files')
    return bad


if __name__ == '__main__':
    sys.exit(main())
