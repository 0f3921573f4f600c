/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that has nothing: with it header.h is compiled. */
