/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of read.pml: x86-TSO, and non-temporal stores. */

/* ---- a writer's stores that are not visible yet ---- */

mtype = {VERSION, BITMAP, FLIP, FREE}; /* FLIP: a bitmap, by show() */
chan fifo[WRITERS] = [12] of {mtype, byte, byte}; /* what, page, value */
byte nt[WRITERS * 3];                           /* slice: 0 none, else 64 + value, + 16 if to R */

/* Ghost: the write under way, until its first mark is visible. */
byte number[WRITERS];
byte written[WRITERS]; /* slices */

#define drained (empty(fifo[me]) && !nt[3 * me] && !nt[3 * me + 1] && !nt[3 * me + 2])

inline begin_moment()
{
    now[0] = (written[w] & 1 -> number[w] : now[0]);
    now[1] = (written[w] & 2 -> number[w] : now[1]);
    now[2] = (written[w] & 4 -> number[w] : now[2]);
    written[w] = 0;
    if
    :: moments ->
        assert(moments < STATES);
        then[3 * moments] = now[0];
        then[3 * moments + 1] = now[1];
        then[3 * moments + 2] = now[2];
        moments++
    :: else
    fi
}

/* One line of a writer's non-temporal stores arrives. */
inline arrive(s)
{
    d_step {
        nt[3 * w + s] ->
        /* assert i2 */
        assert(((durable[page_of(s)] >> s) & 1) != ((nt[3 * w + s] >> 4) & 1));
        home[s + 3 * ((nt[3 * w + s] >> 4) & 1)] = (nt[3 * w + s] & 15);
        nt[3 * w + s] = 0
    }
}

proctype memory(byte w)
{
    mtype what;
    byte page, value;
end:
    do
    :: d_step {
        fifo[w]?what, page, value;
        if
        :: what == VERSION -> version[page] = value
        :: what == BITMAP -> bitmap[page] = value
        :: what == FLIP ->
            if :: written[w] -> begin_moment() :: else fi;
            bitmap[page] = value
        :: what == FREE -> holder[page] = 0
        fi;
        what = 0;
        page = 0;
        value = 0
    }
    :: arrive(0)
    :: arrive(1)
    :: arrive(2)
    od
}
