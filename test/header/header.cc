/* SPDX-License-Identifier: BSD-3-Clause */
/* An empty library: compiles header.h. */
