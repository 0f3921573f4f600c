# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# Completion of the command `ato` in bash. Commands, options and operands are those that the tool's own help names.

# The possible values of an option or operand, by its name in the help: choices, or files, folders, programs.
_ato_values()
{
    local file

    case $1 in
        *[a-z]*) mapfile -t COMPREPLY < <(compgen -W "${1//|/ }" -- "$2") ;;
        *PROGRAM*) mapfile -t COMPREPLY < <(compgen -c -- "$2") ;;
        *FILE* | *PATH* | *OUT* | *SRC* | *DST*) file=-f ;;
        *FOLDER* | *DIR*) file=-d ;;
    esac
    if [[ -n ${file:-} ]]; then
        mapfile -t COMPREPLY < <(compgen "$file" -- "$2")
        compopt -o filenames 2>/dev/null
    fi
}

_ato()
{
    local tool=${COMP_WORDS[0]} command=${COMP_WORDS[1]} cur=${COMP_WORDS[COMP_CWORD]} given rest i
    local before=${COMP_WORDS[COMP_CWORD - 1]} list=--help value=

    COMPREPLY=()
    if ((COMP_CWORD == 1)) || [[ $command == help ]]; then
        list=$("$tool" --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]\{1,\}\) .*/\1/p')
        ((COMP_CWORD > 1)) || list+=' help --help --version'
        mapfile -t COMPREPLY < <(compgen -W "$list" -- "$cur")
        return
    fi
    # An option with its value may be three words: --prefer = file
    given=$before
    [[ $before != = ]] || given=${COMP_WORDS[COMP_CWORD - 2]}
    rest=$("$tool" help "$command" 2>/dev/null | sed -n '1s/^usage: ato [a-z]*//p')
    while [[ $rest =~ ^[\ .]*\[(--[a-z-]+)(\[=([a-z|]+)\]|[=\ ]([A-Za-z|]+))?\](.*) ]]; do
        rest=${BASH_REMATCH[5]}
        value=${BASH_REMATCH[3]}${BASH_REMATCH[4]}
        list+=" ${BASH_REMATCH[1]}"
        if [[ $given == "${BASH_REMATCH[1]}" ]]; then
            if [[ $cur == = || $before == = || (-n $value && ${BASH_REMATCH[2]} != \[*) ]]; then
                _ato_values "$value" "${cur#=}"
                return
            fi
        fi
        if [[ $value == *[a-z]* ]]; then
            list+=" ${BASH_REMATCH[1]}=${value//|/ ${BASH_REMATCH[1]}=}"
        fi
    done
    if [[ $rest == *PROGRAM* ]]; then # the words behind the program are the program's
        for ((i = 2; i < COMP_CWORD; i++)); do
            case ${COMP_WORDS[i]} in
                --path) ((i++)) ;;
                -* | =) ;;
                *)
                    if declare -F _command_offset >/dev/null; then
                        _command_offset "$i"
                    else
                        _ato_values FILE "$cur"
                    fi
                    return
                    ;;
            esac
        done
    fi
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$list" -- "$cur")
    else
        _ato_values "${rest##* [a-z]}" "$cur"
    fi
}

complete -F _ato ato
