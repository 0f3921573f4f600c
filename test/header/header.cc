/* A library that has nothing: with it header.h is compiled. */
