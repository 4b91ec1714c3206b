// The program step_model.
#ifndef LOCKSTEP_TESTS_BENCH_MODEL_MODEL_MAIN_H_
#define LOCKSTEP_TESTS_BENCH_MODEL_MODEL_MAIN_H_

namespace lockstep {

// argv[0], the program's name, is skipped. Prints to stdout; the
// exit code: 0, 1 where measuring failed, 2 for options that make no sense.
// With --measure it forks: call it before there are threads.
int RunModel(int argc, char** argv);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_MODEL_MODEL_MAIN_H_
