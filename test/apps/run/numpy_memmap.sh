# shellcheck shell=bash
# numpy's tests of memmap, as they are installed. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_PACKAGES=(python3-pytest python3-hypothesis)

own_tests()
{
    pytests --pyargs numpy.core.tests.test_memmap
}
