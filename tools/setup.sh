# shellcheck shell=bash
# What must be there before anything can be built, and how a build folder is made: for the commands
# beside this file, which source it. It defines functions and does nothing by itself; it expects
# `set -euo pipefail` and the top folder of the sources as working folder.

# shellcheck disable=SC2034 # used by those who source this
BUILD_PACKAGES=(gcc g++ libc6-dev meson ninja-build pkg-config libpmem-dev libsqlite3-dev)
# shellcheck disable=SC2034
TEST_PACKAGES=(cmake libgtest-dev libpmemobj-dev libfuse3-dev attr e2fsprogs xfsprogs rsync sqlite3 zsh)
command -v go >/dev/null || TEST_PACKAGES+=(golang-go)

# A line of progress, with the seconds since the start.
say()
{
    printf '[%3d s] %s\n' "$SECONDS" "$*"
}

die()
{
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# whole_number OPTION [NUMBER...]: the number.
whole_number()
{
    [[ ${2:-} =~ ^[0-9]+$ ]] || die "$1 takes a whole number"
    printf '%s\n' "$2"
}

# from_top FILE: prints its path from the top folder; a path from the user counts from $FROM, the user's
# folder.
from_top()
{
    local path

    path=$(cd "$FROM" && realpath -ms --relative-to "$OLDPWD" "$1")
    [ ! -d "$path" ] || die "$1 is a folder: name files"
    [ -f "$path" ] || git -c safe.directory='*' ls-files --error-unmatch "$path" >/dev/null 2>&1 || die "there is no file $1"
    printf '%s\n' "$path"
}

# ---- Packages ----

is_installed()
{
    dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -x installed >/dev/null
}

as_root()
{
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Asks nothing, waits for another apt that is at work, and shows only what it sets up.
apt_quietly()
{
    as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
        apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null 2>&1 |
        sed -un 's/^Setting up \([^ ]*\).*/    \1/p; /^[EW]:/p; /^sudo:/p'
}

# Install those of the named Debian packages that are missing.
need_packages()
{
    local package missing=()

    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        say "no apt on this system: taking it that there is what these Debian packages hold: $*"
        return
    fi
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    if [ "${#missing[@]}" -eq 0 ]; then
        return
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        die "packages are missing, and installing them takes root or sudo. As root, run:
    apt-get install ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    apt_quietly update || say "the package lists could not be brought up to date; trying without"
    apt_quietly install --no-install-recommends "${missing[@]}" ||
        die "apt could not install the packages. See why with, as root:
    apt-get install ${missing[*]}"
}

# clang, and what its sanitizers and libFuzzer are linked with, which is in a package that carries its version in its name.
need_clang()
{
    local version

    need_packages clang
    version=$(clang -dumpversion)
    need_packages "libclang-rt-${version%%.*}-dev"
}

# The newest SQLite, with its tools, is in the wheel of apsw.
NEWEST_SQLITE_WHEEL=apsw==3.54.1.0 NEWEST_SQLITE=build/apsw

# Fetches it into $NEWEST_SQLITE, for the python3 that runs the tests. Without it some tests are skipped.
need_newest_sqlite()
{
    local wheel

    wheel="$NEWEST_SQLITE_WHEEL $(python3 -c 'import sys; print(*sys.version_info[:2])')"
    [ "$(cat "$NEWEST_SQLITE.version" 2>/dev/null)" != "$wheel" ] || return 0
    need_build_folder
    python3 -m pip --version >/dev/null 2>&1 || need_packages python3-pip
    say "fetching $NEWEST_SQLITE_WHEEL"
    rm -rf "$NEWEST_SQLITE"
    if python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --target "$NEWEST_SQLITE" \
        "$NEWEST_SQLITE_WHEEL" >"$NEWEST_SQLITE.log" 2>&1; then
        printf '%s\n' "$wheel" >"$NEWEST_SQLITE.version"
    else
        say "it could not be fetched: $NEWEST_SQLITE.log says why"
    fi
}

# ---- Sources of Debian's packages ----

# apt with lists of its own, in $FOLDER/apt: those of the machine are left as they are.
apt_for_sources()
{
    apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$FOLDER/apt/sources" \
        -o "Dir::State::Lists=$FOLDER/apt/lists" -o "Dir::Cache=$FOLDER/apt/cache" \
        -o APT::Sandbox::User= "$@"
}

# Where the machine has its packages from, there are their sources.
write_apt_sources()
{
    local list='' parts='' file

    eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
    for file in "$parts"*.sources; do
        [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" >"$FOLDER/apt/sources/${file##*/}"
    done
    for file in "$list" "$parts"*.list; do
        [ ! -f "$file" ] || sed -n 's/^deb[[:space:]]/deb-src /p' "$file" >"$FOLDER/apt/sources/${file##*/}"
    done
}

# ---- Running ----

# A filter of the user's would leave out tests.
unset "${!GTEST_@}"

# in_parallel COMMAND ARGUMENT...: COMMAND with each ARGUMENT, as many at once as there are CPUs. What they
# print is mixed, by lines. Adds to the caller's `failed` how many did: as a condition, it would leave
# `set -e` without effect in all of them.
in_parallel()
{
    local command=$1 argument running=0
    shift

    for argument; do
        if [ "$running" -ge "$(nproc)" ]; then
            wait -n || failed=$((failed + 1))
            running=$((running - 1))
        fi
        "$command" "$argument" &
        running=$((running + 1))
    done
    for (( ; running > 0; running--)); do
        wait -n || failed=$((failed + 1))
    done
}

# ---- Building ----

# All of it lies below build/.
need_build_folder()
{
    if ! mkdir -p build || [ ! -w build ]; then
        die "cannot write to $PWD/build: does it belong to another user?"
    fi
}

# Run a command; show what it prints only if it fails.
quietly()
{
    local log=$1
    shift

    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        die "failed: $*"
    }
}

# lock_folder FOLDER: until this command ends, no other works there: it could configure anew what this one runs.
declare -A LOCKS=()
lock_folder()
{
    local descriptor

    [ -z "${LOCKS[$1]:-}" ] || return 0
    exec {descriptor}>"$1.lock"
    flock -n "$descriptor" ||
        die "another command, or what is left of one, works in $PWD/$1: wait for it, or see 'fuser $1.lock'"
    LOCKS[$1]=$descriptor
}

# configure FOLDER OPTION...: a build folder with these meson options. Kept when it is there, was
# configured alike and for this place, and meson was not told others since.
configure()
{
    local folder=$1 alike
    shift

    need_build_folder
    lock_folder "$folder"
    alike="$PWD ${CC:-} ${CXX:-} ${CFLAGS:-} ${CXXFLAGS:-} ${LDFLAGS:-} $*"
    if [ -f "$folder/build.ninja" ] &&
        [ "$(cat "$folder.configured" 2>/dev/null)" = "$alike$(cat "$folder/meson-private/cmd_line.txt" 2>/dev/null)" ]; then
        return
    fi
    say "configuring $folder"
    if ! rm -rf "$folder" "$folder.configured"; then
        die "cannot make $PWD/$folder anew: does it belong to another user?"
    fi
    quietly "$folder.log" meson setup "$folder" "$@"
    printf '%s%s\n' "$alike" "$(cat "$folder/meson-private/cmd_line.txt")" >"$folder.configured"
}

# build FOLDER [TARGET...]: what is not up to date (of these targets), with a line for each step.
build()
{
    [ -w "$1" ] || die "cannot write to $PWD/$1: does it belong to another user?"
    say "building in $1"
    NINJA_STATUS='  [%f/%t] ' ninja -C "$@" || die "the build failed: see above"
}

# The trees that the commands share: what one has built, the next finds there.

# As it is installed, but with its assertions. Where there is clang it compiles the tests: it takes half the time of gcc.
RELEASE=build/release
configure_release()
{
    CXX=${CXX:-$(command -v clang++ || echo c++)} configure "$RELEASE" --buildtype=release -Db_ndebug=false -Dwerror=true -Dtests=true -Dsqlite=enabled
}

# Lines for backtraces, and nothing of variables: a fifth less to compile. -O1 is what sanitizers are meant to be used with.
SANITIZED=(--buildtype=debugoptimized -Doptimization=1 -Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1 -Db_lundef=false
    -Dwerror=true -Dtests=true)

# clang with AddressSanitizer and UndefinedBehaviorSanitizer: tests and fuzzers.
CLANG=build/clang
configure_clang()
{
    need_clang
    CC=clang CXX=clang++ configure "$CLANG" "${SANITIZED[@]}" -Db_sanitize=address,undefined -Dfuzzers=true -Dsqlite=enabled
}

# clang's ThreadSanitizer: gcc's looks at no non-temporal store, and warns of every fence that it does not know them.
# Without assertions, as the library is installed.
RACES=build/races
configure_races()
{
    need_clang
    CC=clang CXX=clang++ configure "$RACES" "${SANITIZED[@]}" -Db_sanitize=thread -Db_ndebug=true -Dsqlite=disabled -Dtools=false
}

# ---- Changes ----

# Prints the newest commit that is four hours older than HEAD: what came after it is `the change` for what
# is only run where something changed. ATO_BASE names another one.
change_base()
{
    local git=(git -c safe.directory='*') newest

    if [ -n "${ATO_BASE:-}" ]; then
        "${git[@]}" rev-parse --quiet --verify "$ATO_BASE^{commit}" || die "ATO_BASE is no commit: $ATO_BASE"
        return
    fi
    newest=$("${git[@]}" log -1 --format=%ct)
    "${git[@]}" rev-list --first-parent -1 --before=$((newest - 4 * 3600)) HEAD
}

# Standard input, in C or C++, without comments and blanks.
code_only()
{
    gcc -fpreprocessed -dD -E -P -x c++ - 2>/dev/null | tr -d ' \t\n'
}

# Prints the files that differ from change_base, one on a line; committed or not. Of sources in C and C++, comments do not
# count. All files where git knows no base.
changed_files()
{
    local git=(git -c safe.directory='*' -c core.quotePath=false) base file

    "${git[@]}" rev-parse --git-dir >/dev/null || return # it says why
    base=$(change_base) || return
    "${git[@]}" ls-files --others --exclude-standard
    if [ -z "$base" ]; then
        "${git[@]}" ls-files
        return
    fi
    "${git[@]}" diff --name-only --no-renames "$base" | while IFS= read -r file; do
        if [[ $file == *.[ch] || $file == *.cc ]] && [ -f "$file" ] &&
            [ "$("${git[@]}" show "$base:$file" 2>/dev/null | code_only)" = "$(code_only <"$file")" ]; then
            continue
        fi
        printf '%s\n' "$file"
    done
}

# ---- Steps of a check ----

# Each step's line of the table at the end; the names of those that failed; the tests of all, with their times.
STEP_LINES=()
STEPS_FAILED=()
TIMES=build/times.tsv

# The counts that test runs print as their last line, added up.
add_counts()
{
    awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { passed += $1; failed += $3; skipped += $5 }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$@"
}

# step NAME COMMAND...: goes on after a failure, so that one run shows all of them.
step()
{
    local name=$1 start=$SECONDS result=ok log=build/step-$1.log counts
    shift

    say "==== $name"
    SECONDS=$SECONDS ATO_TIMES=$TIMES "$@" 2>&1 | tee "$log" || result=FAILED # its clock goes on from ours
    if [ "$result" = FAILED ]; then
        STEPS_FAILED+=("$name")
        [[ $(add_counts "$log") != *' 0 failed'* ]] || printf '0 passed, 1 failed, 0 skipped\n' >>"$log"
    fi
    counts=$(grep '^images [0-9]*, recoveries' "$log" | tail -n 1) || counts=$(add_counts "$log")
    STEP_LINES+=("$(printf '%-12s %-6s %5d s   %s' "$name" "$result" $((SECONDS - start)) "$counts")")
    say "==== $name: $result after $((SECONDS - start)) s"
}

# Has no step failed so far?
all_well()
{
    [ "${#STEPS_FAILED[@]}" -eq 0 ]
}

begin_steps()
{
    need_build_folder
    rm -f build/step-*.log
    : >"$TIMES"
}

# Prints the table of the steps, the ten longest tests and the sum of the counts. Fails if a step did.
end_steps()
{
    printf '%s\n' '' "${STEP_LINES[@]}" '' 'the longest tests:'
    sort -rn "$TIMES" | awk -F '\t' 'NR <= 10 { printf "%8.1f s   %s\n", $1 / 1000, $2 }'
    printf '\n'
    if all_well; then
        say "everything holds"
    else
        say "FAILED: ${STEPS_FAILED[*]}"
    fi
    add_counts build/step-*.log
    all_well
}
