// By itself, because a conformance test puts a function of its own in its place.
#include "common/harness/program/rung.hpp"

int flash::rung_main(Rung& rung, int argc, char** argv) { return rung.program(argc, argv); }
