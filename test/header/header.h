/* SPDX-License-Identifier: BSD-3-Clause */
/* The headers that most tests include first, precompiled: ../meson.build. No test may rely on it; each
 * includes the headers that it uses. */
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
