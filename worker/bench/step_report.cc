#include "worker/bench/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace lockstep::worker::bench {
namespace {

// Rows of ranks that are shown; the JSON has all.
constexpr size_t kMostRows = 32;

std::string Count(double count) {
  if (count >= 1e9) return fmt::format("{:.4g} G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.4g} M", count / 1e6);
  return fmt::format("{:.0f}", count);
}

std::string Mebibytes(double bytes) {
  return bytes < 1e5 ? fmt::format("{:.1f} KiB", bytes / 1024)
                     : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

std::string Percent(double part) { return fmt::format("{:.1f} %", part * 100); }

std::string ModelText(const StepResults& r) {
  const StepBenchOptions& model = r.model;
  std::string work = model.flops > 0 ? fmt::format("{}FLOP", Count(model.flops))
                                     : fmt::format("{:.4g} ms of computing",
                                                   model.compute_seconds * 1e3);
  if (model.accumulate > 1) {
    work = fmt::format("{} times {}", model.accumulate, work);
  }
  return fmt::format(
      "# step: {} parameters in {} tensors, {} ({}FLOP/s); {} rank{}, {} "
      "steps\n"
      "#   reduced in a step: {} as {}, in {:.3g} part{}\n",
      Count(static_cast<double>(model.parameters)), model.tensors, work,
      Count(r.flops_per_second), r.ranks, r.ranks == 1 ? "" : "s", r.steps,
      Mebibytes(static_cast<double>(r.bytes)),
      model.bf16_wire ? "bf16" : "fp32", r.reductions,
      r.reductions == 1 ? "" : "s");
}

std::string TimesRow(const std::string& name, const StepTimes& times,
                     const StepTimes& alone) {
  return fmt::format("# {:<34} {:>10.3f} {:>10.3f} {:>9.2f} {:>11}\n", name,
                     times.p50 * 1e3, times.p99 * 1e3,
                     times.p50 > 0 ? 1 / times.p50 : 0,
                     times.p50 > 0 ? Percent(alone.p50 / times.p50) : "-");
}

std::string TimesText(const StepResults& r) {
  std::string text =
      fmt::format("#\n# {:<34} {:>10} {:>10} {:>9} {:>11}\n", "", "p50 (ms)",
                  "p99 (ms)", "steps/s", "efficiency");
  text += TimesRow("rank 0 alone", r.alone, r.alone);
  if (r.ranks == 1) return text + TimesRow("with its reducer", r.step, r.alone);
  text += TimesRow("all ranks, no reductions", r.beside, r.alone);
  return text + TimesRow("all ranks, with reductions", r.step, r.alone);
}

std::string RankRow(const std::string& name, const StepOfRank& rank) {
  return fmt::format("# {:>5} {:>13.3f} {:>13.3f} {:>9} {:>13.3f} {:>13.3f}\n",
                     name, rank.compute * 1e3, rank.busy * 1e3,
                     rank.busy > 0 ? Percent(rank.hidden()) : "-",
                     rank.exposed * 1e3, rank.waited * 1e3);
}

std::string RanksText(const StepResults& r) {
  std::string text = fmt::format(
      "#\n# {:>5} {:>13} {:>13} {:>9} {:>13} {:>13}\n"
      "# {:>5} {:>13} {:>13} {:>9} {:>13} {:>13}\n",
      "rank", "computing", "reducing", "hidden", "exposed", "for the last", "",
      "(ms)", "(ms)", "", "(ms)", "(ms)");
  for (size_t i = 0; i < std::min(kMostRows, r.by_rank.size()); ++i) {
    text += RankRow(std::to_string(i), r.by_rank[i]);
  }
  if (r.by_rank.size() > kMostRows) {
    text += fmt::format("# ... and {} more\n", r.by_rank.size() - kMostRows);
  }
  return text + RankRow("mean", r.mean());
}

std::string LastText(const StepResults& r) {
  std::string text;
  if (r.straggler.rank >= 0) {
    text += fmt::format(
        "# Straggler            : rank {} came last to {} of the last {} steps "
        "and costs {} of their time\n",
        r.straggler.rank, r.straggler.late_steps, r.straggler.steps,
        Percent(r.straggler.cost));
  }
  const StepOfRank mean = r.mean();
  text += fmt::format(
      "# Exposed communication: {} of the step, {} hidden; bus bandwidth while "
      "reducing {:.2f} GB/s\n",
      r.step.mean > 0 ? Percent(mean.exposed / r.step.mean) : "-",
      mean.busy > 0 ? Percent(mean.hidden()) : "none",
      r.bus_bandwidth() * 1e-9);
  if (r.wrong < 0) return text;
  return text + fmt::format("# Out of bounds values : {} {}\n", r.wrong,
                            r.wrong == 0 ? "OK" : "FAILED");
}

nlohmann::json TimesJson(const StepTimes& times) {
  return {{"p50", times.p50}, {"p99", times.p99}, {"mean", times.mean}};
}

nlohmann::json RankJson(const StepOfRank& rank) {
  return {{"compute_seconds", rank.compute},
          {"busy_seconds", rank.busy},
          {"exposed_seconds", rank.exposed},
          {"straggler_wait_seconds", rank.waited}};
}

}  // namespace

StepTimes Summarize(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    const double rank = std::ceil(part * static_cast<double>(seconds.size()));
    return seconds[std::max<size_t>(1, static_cast<size_t>(rank)) - 1];
  };
  return {at(0.5), at(0.99),
          std::accumulate(seconds.begin(), seconds.end(), 0.0) /
              static_cast<double>(seconds.size())};
}

double StepResults::efficiency() const {
  return step.p50 > 0 ? alone.p50 / step.p50 : 0;
}

StepOfRank StepResults::mean() const {
  StepOfRank sum;
  for (const StepOfRank& rank : by_rank) {
    sum.compute += rank.compute;
    sum.busy += rank.busy;
    sum.exposed += rank.exposed;
    sum.waited += rank.waited;
  }
  const double n = by_rank.empty() ? 1 : static_cast<double>(by_rank.size());
  return {sum.compute / n, sum.busy / n, sum.exposed / n, sum.waited / n};
}

double StepOfRank::hidden() const {
  return busy > 0 ? std::clamp(1 - exposed / busy, 0.0, 1.0) : 0;
}

double StepResults::bus_bandwidth() const {
  const double busy = mean().busy;
  if (busy <= 0 || ranks < 2) return 0;
  return 2.0 * (ranks - 1) / ranks * static_cast<double>(bytes) / busy;
}

std::string StepText(const StepResults& results) {
  std::string text = ModelText(results) + TimesText(results);
  if (results.ranks > 1) text += RanksText(results);
  return text + "#\n" + LastText(results);
}

nlohmann::json StepJson(const StepResults& r) {
  nlohmann::json json = RankJson(r.mean());
  json.update({{"collective", "step"},
               {"ranks", r.ranks},
               {"steps", r.steps},
               {"parameters", r.model.parameters},
               {"tensors", r.model.tensors},
               {"accumulate", r.model.accumulate},
               {"wire", r.model.bf16_wire ? "bf16" : "fp32"},
               {"flops_per_second", r.flops_per_second},
               {"bytes", r.bytes},
               {"reductions", r.reductions},
               {"alone", TimesJson(r.alone)},
               {"unreduced", TimesJson(r.beside)},
               {"step", TimesJson(r.step)},
               {"steps_per_second", r.step.p50 > 0 ? 1 / r.step.p50 : 0},
               {"efficiency", r.efficiency()},
               {"hidden", r.mean().hidden()},
               {"busbw", r.bus_bandwidth() * 1e-9},
               {"straggler", nullptr}});
  nlohmann::json by_rank = nlohmann::json::array();
  for (const StepOfRank& rank : r.by_rank) by_rank.push_back(RankJson(rank));
  json["by_rank"] = std::move(by_rank);
  if (r.straggler.rank >= 0) {
    json["straggler"] = {{"rank", r.straggler.rank},
                         {"late_steps", r.straggler.late_steps},
                         {"steps", r.straggler.steps},
                         {"cost", r.straggler.cost}};
  }
  if (r.wrong >= 0) json["wrong"] = r.wrong;
  return json;
}

}  // namespace lockstep::worker::bench
