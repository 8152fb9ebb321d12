# shellcheck shell=bash
# Shared by the scripts of this folder: where we are, how we speak, how we wait. Sourced, never run.
set -euo pipefail

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)"
PROGRAM="$(cd -- "$(dirname -- "$0")" && pwd -P)/$(basename -- "$0")"
PROGRAM=${PROGRAM#"$ROOT"/} # as it is named in messages
WORK="$(mktemp -d)" # logs and temporary files
trap 'rm -rf -- "$WORK"' EXIT
trap '[[ ! -t 2 ]] || say >&2; warn "interrupted; called again, it goes on where it was"; exit 130' INT
chmod 755 "$WORK" # apt downloads as a user of its own

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "$PROGRAM" "$*" >&2; }
usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; } # the comment at the top of the script
# die MESSAGE: nothing can be done; the exit code 2 means "bad input, or a machine that cannot".
die() {
    warn "$*"
    exit 2
}
# wrong_option ARGUMENT
wrong_option() { die "unknown option '$1'; see $PROGRAM --help"; }
# read_options "NAME..." ARGUMENT...: gives the variable NAME the value behind --NAME; what follows the options is REST.
read_options() {
    local names=$1
    shift
    while [[ ${1:-} == -* ]]; do
        [[ $1 != -h && $1 != --help ]] || { usage && exit 0; }
        [[ $1 == --* && " $names " == *" ${1#--} "* ]] || wrong_option "$1"
        [[ -n ${2:-} ]] || die "$1 needs a value; see $PROGRAM --help"
        printf -v "${1#--}" %s "$2"
        shift 2
    done
    REST=("$@")
}

# run_logged LOG LABEL COMMAND...: runs the command with its output in LOG and says LABEL, a dot every two seconds, and
# how long it took. Returns the command's exit code.
run_logged() {
    local log=$1 label=$2 start=$SECONDS code=0
    shift 2
    printf '%s ' "$label"
    (while sleep 2 && kill -0 $$ 2>/dev/null; do printf '.'; done) &
    local ticker=$!
    ("$@") >"$log" 2>&1 </dev/null || code=$? # not in the background, where Ctrl-C would not reach it
    kill "$ticker" 2>/dev/null && wait "$ticker" 2>/dev/null || true
    printf ' %s (%d s)\n' "$([[ $code -eq 0 ]] && echo "done" || echo failed)" $((SECONDS - start))
    return "$code"
}

# run_silently LOG LABEL COMMAND...: the same without a lasting trace: on a terminal LABEL and dots show on stderr while
# the command runs, elsewhere nothing.
run_silently() {
    local log=$1 label=$2 code=0
    shift 2
    if [[ -t 2 ]]; then
        run_logged "$log" "$label" "$@" >&2 || code=$?
        printf '\033[1A\033[2K' >&2 # up one line, and clear it
    else
        ("$@") >"$log" 2>&1 </dev/null || code=$? # of its own, so that what a trap says is not in LOG
    fi
    return "$code"
}

# version_at_least HAVE WANT
version_at_least() { [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]; }

# How many compilers may run at once: one a processor, and a gigabyte of memory for each.
job_count() {
    local jobs memory
    jobs=$(nproc 2>/dev/null || echo 1)
    memory=$(awk '/^MemAvailable:/ { print int($2 / 1000000) }' /proc/meminfo 2>/dev/null || true)
    if [[ -n $memory ]] && ((memory < jobs)); then
        jobs=$((memory > 0 ? memory : 1))
    fi
    echo "$jobs"
}
