# shellcheck shell=bash
# Choosing the backend, configuring and building. Sourced, never run.
. "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

PRESETS="cpu simt dev cuda asan"

# rungs: NN_name of the ladder's rungs, one per line, in order. cuda_rungs: of those with a compute capability.
rungs() { awk -F ' *[|] *' '/^[^#]/ { print $1 }' "$ROOT/steps/ladder.txt"; }
cuda_rungs() { awk -F ' *[|] *' '/^[^#]/ && $5 != "-" { print $1 }' "$ROOT/steps/ladder.txt"; }
# find_rung WANTED: NN_name of the rung with this number, this name, or both. Ends with what there is when it is none.
find_rung() {
    local found
    found=$(rungs | awk -v wanted="$1" '{ number = name = $0; sub(/_.*/, "", number); sub(/^[^_]*_/, "", name) }
        wanted == $0 || wanted == name || wanted == number || "0" wanted == number { print; exit }')
    [[ -n $found ]] || die "$(PYTHONPATH=$ROOT/scripts python3 -B -m lab.ladder "$1" || echo "there is no rung '$1'")"
    printf '%s\n' "$found"
}

# inspect: NVCC, GPU (each empty when there is none), TOO_OLD (why the CUDA rungs do not run on that GPU, or empty),
# CUDA_RUNGS (their names, separated by spaces).
inspect() {
    if [[ -n ${CUDACXX:-} ]]; then
        NVCC=$(command -v "$CUDACXX" || true)
    else
        NVCC=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc || true)
    fi
    GPU=$(nvidia-smi -L 2>/dev/null | sed -n 's/^GPU [0-9]*: \(.*\) (UUID.*/\1/p' | head -n 1 || true)
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
        grep -xE '[0-9]+\.[0-9]' | sort -V | tail -n 1 || true)
    TOO_OLD=''
    [[ -z $capability || ${capability%.*} -ge 8 ]] ||
        TOO_OLD="; its compute capability is $capability, and the CUDA rungs need 8.0"
    CUDA_RUNGS=$(cuda_rungs | paste -sd ' ')
}

# choose_backend [PRESET]: sets PRESET and BACKEND, and says what was found.
# A GPU with nvcc runs the CUDA rungs; without one of them the SIMT backend executes them on the CPU.
choose_backend() {
    PRESET=${1:-}
    [[ -z $PRESET || " $PRESETS " == *" $PRESET "* ]] || die "there is no preset '$PRESET'; the presets are $PRESETS"
    inspect
    if [[ -z $PRESET ]]; then
        if [[ -z $CUDA_RUNGS ]]; then
            PRESET=cpu
        elif [[ -n $GPU && -z $TOO_OLD && -n $NVCC ]]; then
            PRESET=cuda
        else
            PRESET=simt
        fi
    fi
    case $PRESET in # what it builds
    dev) BACKEND=simt ;;  # each file by itself
    asan) BACKEND=cpu ;; # with sanitizers
    *) BACKEND=$PRESET ;;
    esac
    [[ $BACKEND != cuda || -n $NVCC ]] ||
        die "preset cuda needs nvcc of the CUDA Toolkit, and none is in PATH or /usr/local/cuda; preset simt needs none"
    BUILD="$ROOT/build-$PRESET"
}

describe_choice() {
    local version=
    [[ -z $NVCC ]] || version=$("$NVCC" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p' || true)
    say "GPU:          ${GPU:-none}$TOO_OLD"
    say "CUDA Toolkit: ${version:-none}"
    if [[ -z $CUDA_RUNGS ]]; then
        say "Rungs:        all of them run on the CPU"
    else
        case $BACKEND in
        cuda) say "CUDA rungs:   ${GPU:+on the GPU}$([[ $GPU ]] || echo for a GPU, and nvidia-smi finds none here)" ;;
        simt) say "CUDA rungs:   executed on the CPU by the SIMT backend" ;;
        cpu) say "CUDA rungs:   left out, preset $PRESET builds for the CPU alone" ;;
        esac
    fi
}

# configured: is there a build folder, finished, and made here? In one that was copied or moved along with a clone, make
# would build the sources of the other place.
configured() {
    grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "$BUILD/CMakeCache.txt" &&
        [[ -e $BUILD/build.ninja || -e $BUILD/Makefile ]]
}

# configure_once: without downloads unless FLASH_FETCH=ON, since apt has what we need. .ci/run sets the other one. One process
# at a time: two would both write the folder's build files, as a build does when a list of CMake's has changed.
# lab/build.py waits for the same lock.
configure_once() {
    local options=(--preset "$PRESET" "-DFLASH_FETCH=${FLASH_FETCH:-OFF}" "-DFLASH_WERROR=${FLASH_WERROR:-OFF}")
    if ! configured; then
        options+=(--fresh) # CMake would keep its cache
        ! command -v ninja >/dev/null || options+=(-G Ninja)
    fi
    (cd "$ROOT" && flock "$BUILD/lock" cmake "${options[@]}")
}

configure_failed() { # LOG [WITH WHAT]
    cat "$1" >&2
    die "CMake could not configure preset $PRESET${2:-} (its output is above)"
}

# configure: CMake's first stage, installing what it finds missing. Prints only what it does about that, or the error.
configure() {
    local log=$WORK/configure.log packages
    if ! mkdir -p "$BUILD" 2>/dev/null || [[ ! -w $BUILD ]]; then
        die "$BUILD cannot be written; please work in a clone of your own"
    fi
    install_tools
    if ! configure_once >"$log" 2>&1 </dev/null; then
        read -r -a packages <<<"$(sed -n 's/^-- missing packages: //p' "$log")"
        [[ ${#packages[@]} -gt 0 ]] || configure_failed "$log"
        install "${packages[@]}"
        configure_once >"$log" 2>&1 </dev/null || configure_failed "$log" " even with ${packages[*]} installed"
    fi
}

# configure_with_extras: likewise, and what a rung needs that nothing else does is installed where that is possible. Where
# it is not, the rung is left out, and that is not tried again in the same build folder.
configure_with_extras() {
    local log=$WORK/configure.log packages
    configure
    read -r -a packages <<<"$(sed -n 's/^-- packages that would add a rung: //p' "$log")"
    if [[ ${#packages[@]} -gt 0 && ! -e $BUILD/without_extras ]] && command -v apt-get >/dev/null &&
        { [[ $(id -u) -eq 0 ]] || sudo -n true 2>/dev/null; }; then
        if (install "${packages[@]}"); then
            configure_once >"$log" 2>&1 </dev/null || configure_failed "$log" " with ${packages[*]} installed"
        else
            warn "going on without ${packages[*]}; scripts/step says what that leaves out"
            : >"$BUILD/without_extras"
        fi
    fi
}

# build [TARGET...]: everything, or the targets; the compiler's output goes through. It holds the lock as well.
build() {
    local target options=()
    for target in "$@"; do
        options+=(--target "$target")
    done
    flock "$BUILD/lock" cmake --build "$BUILD" --parallel "$(job_count)" "${options[@]}"
}
