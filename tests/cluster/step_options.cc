#include "tests/cluster/step_options.h"

#include <charconv>
#include <map>
#include <string_view>

namespace lockstep {

StatusOr<StepOptions> ParseStepOptions(int argc, char** argv) {
  StepOptions o;
  const std::map<std::string_view, int64_t*> numbers = {
      {"--steps", &o.steps},         {"--batch", &o.batch},
      {"--step_ms", &o.step_ms},     {"--slow_rank", &o.slow_rank},
      {"--slow_ms", &o.slow_ms},     {"--vote_ms", &o.vote_ms},
      {"--hold_step", &o.hold_step}, {"--print_steps", &o.print_steps},
      {"--recover", &o.recover},     {"--elastic", &o.elastic},
      {"--late_ms", &o.late_ms},     {"--state_mib", &o.state_mib},
      {"--odd_rank", &o.odd_rank},   {"--fail_step", &o.fail_step},
      {"--fail_rank", &o.fail_rank}, {"--fail_attempts", &o.fail_attempts}};
  const std::map<std::string_view, std::string*> texts = {
      {"--hold_file", &o.hold_file},
      {"--fail_how", &o.fail_how},
      {"--backend", &o.backend}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const std::string_view value = argv[i + 1];
    if (const auto text = texts.find(flag); text != texts.end()) {
      *text->second = value;
      continue;
    }
    const auto number = numbers.find(flag);
    if (number == numbers.end()) return InvalidArgument("no flag {}", flag);
    const auto end = value.data() + value.size();
    if (std::from_chars(value.data(), end, *number->second).ptr != end) {
      return InvalidArgument("{}: {} is no number", flag, value);
    }
  }
  if (argc % 2 == 0) return InvalidArgument("{} has no value", argv[argc - 1]);
  return o;
}

}  // namespace lockstep
