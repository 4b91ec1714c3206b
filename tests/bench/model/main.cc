// step_model: predicts what larger clusters would do.
#include <cstdio>
#include <exception>

#include "tests/bench/model/model_main.h"

int main(int argc, char** argv) {
  try {
    return lockstep::RunModel(argc, argv);
  } catch (const std::exception& error) {
    // Such as no memory.
    std::fprintf(stderr, "step_model: %s\n", error.what());
    return 1;
  }
}
