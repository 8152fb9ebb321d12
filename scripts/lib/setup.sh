# shellcheck shell=bash
# Set-up: finds what the build needs and installs what is missing with apt. Sourced, never run.
# Nothing here calls apt when everything is found.
. "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

CMAKE_WANTED=3.25

# What a person who has no apt must install, for messages.
NEEDED="a C++20 compiler (g++ 11 or later, or clang++ 14 with its OpenMP library), CMake $CMAKE_WANTED or later, Ninja or make,
Python 3, Eigen 3.4, CLI11 2, nlohmann-json 3, Catch2 3, and Boost.Context and libdw for CUDA kernels on the CPU"

# Every library of the build, as packages: on a bare machine they are all installed in one go.
# The build itself (cmake/Dependencies.cmake) decides whether one of them is missing.
LIBRARY_PACKAGES=(libeigen3-dev libcli11-dev nlohmann-json3-dev catch2)

# find_missing_tools: sets MISSING to the packages of the programs that are not there.
# (No process substitution in these scripts: it needs /dev/fd, which a root without /proc does not have.)
find_missing_tools() {
    local version
    MISSING=()
    command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || MISSING+=(g++)
    version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p' || true)
    version_at_least "$version" "$CMAKE_WANTED" || MISSING+=(cmake)
    # make and not Ninja: a plain `cmake -B build` finds make by itself
    command -v ninja >/dev/null || command -v make >/dev/null || MISSING+=(make)
    command -v python3 >/dev/null || MISSING+=(python3)
}

# as_root COMMAND...: as root, or through the sudo that require_apt has asked for the password.
as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    else
        sudo -n -- "$@"
    fi
}

apt_get() { # waits for another apt to end, and never asks; in a session of its own, where Ctrl-C does not break it off
    as_root setsid --wait env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=120 "$@"
}

# os_release FIELD: of this system, "" when unknown.
os_release() { (. /etc/os-release 2>/dev/null && printf '%s' "${!1:-}") || true; }

# require_apt PACKAGE...: stops with what to do when this script cannot install the packages.
require_apt() {
    command -v apt-get >/dev/null ||
        die "something is missing, and this system ($(os_release PRETTY_NAME)) has no apt. Please install $NEEDED.
Missing, by the names of Debian's packages: $*
Missing libraries alone CMake can download: FLASH_FETCH=ON $PROGRAM"
    [[ $(id -u) -ne 0 ]] || return 0
    local fetch=''
    [[ " $* " != *" catch2 "* ]] || version_at_least "$(candidate catch2)" 3 ||
        fetch=$'\n'"Its Catch2 is older than 3. To have that downloaded, call FLASH_FETCH=ON $PROGRAM then."
    command -v sudo >/dev/null ||
        die "packages are missing, and there is no sudo. Please run as root: apt-get install $*$fetch"
    sudo -n true 2>/dev/null || { [[ -t 0 ]] && sudo -v; } ||
        die "packages are missing, and sudo would ask for a password. Please run: sudo apt-get install $*$fetch"
}

# candidate PACKAGE: the version that apt would install, "" when there is none.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([^(].*\)/\1/p'; }

# Debian 12 has Catch2 2.13, its backports have 3.7. They are read through a source list that exists only while this
# runs, with package lists in a folder of their own, so that the system's sources stay as they are.
# Prints the downloaded packages' paths.
download_catch2_from_backports() {
    local mirror apt_options
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)
    [[ -n $mirror ]] || return 1
    mkdir -p "$WORK/backports/lists/partial" "$WORK/backports/packages"
    echo "deb $mirror bookworm-backports main" >"$WORK/backports/sources.list"
    apt_options=(-o "Dir::Etc::sourcelist=$WORK/backports/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::Lists=$WORK/backports/lists" -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=")
    as_root apt-get "${apt_options[@]}" -q update &&
        (cd "$WORK/backports/packages" && as_root apt-get "${apt_options[@]}" -q download catch2 libcatch2-dev)
}

# install PACKAGE...
install() {
    local packages=() package log=$WORK/apt.log backported=()
    require_apt "$@"
    say "Installing with apt: $*"
    run_logged "$log" "  reading the package lists" apt_get -q update || apt_failed "$log"
    for package in "$@"; do
        if [[ $package == catch2 ]] && ! version_at_least "$(candidate catch2)" 3; then
            if [[ $(os_release VERSION_CODENAME) == bookworm ]] &&
                run_logged "$log" "  Catch2 3 from bookworm-backports" download_catch2_from_backports; then
                backported=("$WORK"/backports/packages/*.deb)
            else
                warn "this system's Catch2 is older than 3; CMake will download its pinned sources"
                FLASH_FETCH=ON
            fi
        else
            packages+=("$package")
        fi
    done
    run_logged "$log" "  installing" apt_get -q install --no-install-recommends "${packages[@]}" "${backported[@]}" ||
        apt_failed "$log"
    hash -r # forget where programs were not
}

apt_failed() { # LOG
    local refused
    refused=$(grep -m 1 -oE "Temporary failure resolving '[^']*'|Could not connect to [^ ]*|Network is unreachable" "$1" || true)
    [[ -z $refused ]] || die "apt cannot download the packages ($refused). Please try again with a network connection."
    tail -n 15 "$1" >&2
    die "apt could not install the packages (its last lines are above). Needed are $NEEDED."
}

# install_tools: the programs that a build needs. On a machine that lacks some, the libraries come along, because
# asking CMake for them takes the programs.
install_tools() {
    find_missing_tools
    [[ ${#MISSING[@]} -gt 0 ]] || return 0
    [[ $BACKEND != simt ]] || LIBRARY_PACKAGES+=(libboost-context-dev libdw-dev)
    install "${MISSING[@]}" "${LIBRARY_PACKAGES[@]}"
    find_missing_tools
    if [[ ${MISSING[*]} == cmake && -n $(command -v cmake) ]]; then
        die "$(command -v cmake), which comes first in PATH, is older than CMake $CMAKE_WANTED;" \
            "another may be behind it: PATH=/usr/bin:\$PATH $PROGRAM"
    fi
    [[ ${#MISSING[@]} -eq 0 ]] ||
        die "this system's packages are too old: ${MISSING[*]} still missing. Needed are $NEEDED."
}
