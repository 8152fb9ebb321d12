# What we build on. An installed package is taken when there is one of the right version; otherwise CMake downloads
# exactly the archive whose hash stands here. To build without a network, unpack the archive and set
# FETCHCONTENT_SOURCE_DIR_<NAME IN CAPITALS> to its folder.
include(FetchContent)

option(FLASH_FETCH "Download a dependency that is not installed" ON)

# Called when a package is absent: says so, or stops when downloads are not wanted.
function(flash_fetch_notice name package)
  if(NOT FLASH_FETCH)
    message(FATAL_ERROR "${name} is not installed. On Debian and Ubuntu: apt install ${package}\n"
                        "Or let CMake download it: -DFLASH_FETCH=ON")
  endif()
  message(STATUS "${name} is not installed; using the pinned archive")
endfunction()

find_package(OpenMP REQUIRED)
find_package(Threads REQUIRED)

find_package(Eigen3 3.4 QUIET NO_MODULE)
if(NOT Eigen3_FOUND)
  flash_fetch_notice("Eigen 3.4" libeigen3-dev)
  # A SOURCE_SUBDIR that does not exist: Eigen is headers only, its own build would add hundreds of targets.
  FetchContent_Declare(Eigen3
    URL https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.bz2
    URL_HASH SHA256=b4c198460eba6f28d34894e3a5710998818515104d6e74e5cc331ce31e46e626
    DOWNLOAD_EXTRACT_TIMESTAMP OFF
    SOURCE_SUBDIR headers-only)
  FetchContent_MakeAvailable(Eigen3)
  add_library(flash_eigen INTERFACE)
  add_library(Eigen3::Eigen ALIAS flash_eigen)
  target_include_directories(flash_eigen SYSTEM INTERFACE ${eigen3_SOURCE_DIR})
endif()

find_package(CLI11 2.1 QUIET)
if(NOT CLI11_FOUND)
  flash_fetch_notice("CLI11 2" libcli11-dev)
  FetchContent_Declare(CLI11
    URL https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    URL_HASH SHA256=f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a
    DOWNLOAD_EXTRACT_TIMESTAMP OFF
    SYSTEM)
  FetchContent_MakeAvailable(CLI11)
endif()

find_package(nlohmann_json 3.10 QUIET)
if(NOT nlohmann_json_FOUND)
  flash_fetch_notice("nlohmann-json 3" nlohmann-json3-dev)
  FetchContent_Declare(nlohmann_json
    URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
    URL_HASH SHA256=d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d
    DOWNLOAD_EXTRACT_TIMESTAMP OFF
    SYSTEM)
  FetchContent_MakeAvailable(nlohmann_json)
endif()

find_package(Catch2 3 QUIET)
if(NOT Catch2_FOUND)
  flash_fetch_notice("Catch2 3" catch2)
  FetchContent_Declare(Catch2
    URL https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
    URL_HASH SHA256=c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c
    DOWNLOAD_EXTRACT_TIMESTAMP OFF
    SYSTEM)
  FetchContent_MakeAvailable(Catch2)
  list(APPEND CMAKE_MODULE_PATH ${catch2_SOURCE_DIR}/extras)
endif()
include(Catch) # catch_discover_tests()

if(FLASH_BACKEND STREQUAL "simt")
  find_package(Boost 1.74 QUIET CONFIG COMPONENTS context)
  if(NOT Boost_FOUND)
    flash_fetch_notice("Boost.Context 1.74" libboost-context-dev)
    set(BOOST_INCLUDE_LIBRARIES context) # of the whole of Boost, build this library and what it needs
    FetchContent_Declare(Boost
      URL https://github.com/boostorg/boost/releases/download/boost-1.83.0/boost-1.83.0.tar.xz
      URL_HASH SHA256=c5a0688e1f0c05f354bbd0b32244d36085d9ffc9f932e8a18983a9908096f614
      DOWNLOAD_EXTRACT_TIMESTAMP OFF
      SYSTEM)
    FetchContent_MakeAvailable(Boost)
  endif()
endif()
