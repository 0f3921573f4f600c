# shellcheck shell=bash
# The tests of Boost.Interprocess that map files. See tools/apps.

# shellcheck disable=SC2034 # tools/apps uses them
OWN_SOURCE=$(dpkg-query -W -f '${Depends}' libboost-dev | sed 's/^lib\(boost[0-9.]*\)-dev.*/\1/')
OWN_FILES=libs/interprocess/test
OWN_NAMES=(managed_mapped_file_test mapped_file_test file_mapping_test)

own_build()
{
    local name
    for name in "${OWN_NAMES[@]}"; do
        # Its files are in the working folder.
        sed 's/ipcdetail::get_temporary_path()/"."/' "$OWN_FILES/$name.cpp" >"$name.cpp"
        g++ -std=c++17 -O1 -w -I"$OWN_FILES" "$name.cpp" -pthread -o "$name"
    done
}

own_tests()
{
    local name
    for name in "${OWN_NAMES[@]}"; do
        each "$name" "$1/$name"
    done
}
