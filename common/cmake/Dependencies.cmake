# What we build on. An installed package is taken when there is one of the right version; otherwise CMake downloads
# exactly the archive whose hash stands here. To build without a network, unpack the archive and set
# FETCHCONTENT_SOURCE_DIR_<NAME IN CAPITALS> to its folder.
include(FetchContent)

option(FLASH_FETCH "Download a library that is not installed" ON)
option(FLASH_KERNELS_ALONE "No harness, no tests, no detectors: what the kernels themselves need" OFF)
set(FLASH_MISSING "") # packages of Debian and Ubuntu that would help, collected when nothing may be downloaded

# flash_fetch(name version package url hash [argument of FetchContent_Declare ...])
macro(flash_fetch name version package url hash)
  if(FLASH_FETCH)
    message(STATUS "${name} is not installed; taking the pinned sources of ${name} ${version}")
    FetchContent_Declare(${name} SYSTEM URL ${url} URL_HASH SHA256=${hash}
                         DOWNLOAD_EXTRACT_TIMESTAMP OFF ${ARGN})
    FetchContent_MakeAvailable(${name})
  else()
    list(APPEND FLASH_MISSING ${package})
  endif()
endmacro()

if(NOT FLASH_KERNELS_ALONE OR FLASH_BACKEND STREQUAL "cpu")
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    list(APPEND FLASH_MISSING libomp-dev) # g++ brings its own; clang's is a package
  endif()

  find_package(Eigen3 3.4 QUIET NO_MODULE)
  if(NOT Eigen3_FOUND)
    # SOURCE_SUBDIR names no folder on purpose: Eigen is headers only, and its own build would add hundreds of targets.
    flash_fetch(Eigen3 3.4.0 libeigen3-dev
      https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.bz2
      b4c198460eba6f28d34894e3a5710998818515104d6e74e5cc331ce31e46e626
      SOURCE_SUBDIR headers-only)
    add_library(flash_eigen INTERFACE)
    add_library(Eigen3::Eigen ALIAS flash_eigen)
    target_include_directories(flash_eigen SYSTEM INTERFACE ${eigen3_SOURCE_DIR})
  endif()
endif()

if(FLASH_BACKEND STREQUAL "simt")
  include(${CMAKE_CURRENT_LIST_DIR}/../simt/Libraries.cmake)
  if(NOT TARGET Boost::context)
    set(BOOST_INCLUDE_LIBRARIES context) # of all Boost, build this library and what it needs
    flash_fetch(Boost 1.83.0 libboost-context-dev
      https://github.com/boostorg/boost/releases/download/boost-1.83.0/boost-1.83.0.tar.xz
      c5a0688e1f0c05f354bbd0b32244d36085d9ffc9f932e8a18983a9908096f614)
  endif()
endif()

if(NOT FLASH_KERNELS_ALONE)
  find_package(Threads REQUIRED)
  find_package(CLI11 2.1 QUIET)
  if(NOT CLI11_FOUND)
    flash_fetch(CLI11 2.4.2 libcli11-dev
      https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
      f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a)
  endif()

  find_package(nlohmann_json 3.10 QUIET)
  if(NOT nlohmann_json_FOUND)
    flash_fetch(nlohmann_json 3.11.3 nlohmann-json3-dev
      https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
      d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
  endif()

  find_package(Catch2 3 QUIET)
  if(NOT Catch2_FOUND)
    flash_fetch(Catch2 3.7.1 catch2
      https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
      c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c)
  endif()

  if(FLASH_BACKEND STREQUAL "simt" AND NOT TARGET flash_libdw)
    list(APPEND FLASH_MISSING libdw-dev) # elfutils has no CMake build that could be taken in
  endif()
endif()

if(FLASH_MISSING)
  list(JOIN FLASH_MISSING " " packages)
  message(STATUS "missing packages: ${packages}") # read by scripts/lib/setup.sh; an error's text would be wrapped
  message(FATAL_ERROR "Libraries are not installed. Debian and Ubuntu have them in the packages named above "
                      "(Debian 12 has Catch2 3 in its backports); scripts/tour and scripts/test install them.\n"
                      "With -DFLASH_FETCH=ON CMake downloads pinned sources of all but libomp-dev and libdw-dev.")
endif()
