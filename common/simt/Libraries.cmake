# What the SIMT backend stands on, as far as it is installed: the targets Threads::Threads, Boost::context,
# nlohmann_json::nlohmann_json and flash_libdw.
find_package(Threads REQUIRED)
find_package(Boost 1.74 QUIET CONFIG COMPONENTS context) # Boost_FOUND is true when only its headers are there
find_package(nlohmann_json 3.10 QUIET)
find_path(LIBDW_INCLUDE_DIR elfutils/libdwfl.h)
find_library(LIBDW_LIBRARY dw)
if(LIBDW_INCLUDE_DIR AND LIBDW_LIBRARY)
  add_library(flash_libdw INTERFACE)
  target_include_directories(flash_libdw SYSTEM INTERFACE ${LIBDW_INCLUDE_DIR})
  target_link_libraries(flash_libdw INTERFACE ${LIBDW_LIBRARY})
endif()
