#include "tests/bench/step_side.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr Duration kStartLimit = seconds(90);
constexpr Duration kRoundLimit = seconds(60);
constexpr Duration kEndLimit = seconds(60);

}  // namespace

Child::Child(const std::vector<std::string>& command, const std::string& log) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], 0);
    dup2(out[1], 1);
    const int fd =
        open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) dup2(fd, 2);
    std::vector<char*> argv;
    for (const std::string& word : command) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
}

Child::~Child() {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Child::Say(const std::string& line) {
  const std::string text = line + "\n";
  if (write(to_, text.data(), text.size()) < 0) return;  // Hear will tell.
}

void Child::EndInput() {
  close(to_);
  to_ = -1;
}

StatusOr<std::string> Child::Hear(MonoTime deadline) {
  while (true) {
    if (const size_t end = text_.find('\n'); end != std::string::npos) {
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return line;
    }
    pollfd waited = {from_, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - MonotonicNow());
    if (left.count() <= 0 ||
        poll(&waited, 1, static_cast<int>(left.count())) <= 0) {
      return DeadlineExceeded("no answer in time");
    }
    char block[4096];
    const ssize_t size = read(from_, block, sizeof(block));
    if (size <= 0) return Unavailable("it has ended");
    text_.append(block, static_cast<size_t>(size));
  }
}

Status Side::Start(const std::string& dir) {
  dir_ = dir;
  for (int rank = 0; rank < kStepRanks; ++rank) {
    ranks_.push_back(std::make_unique<Child>(command_(rank, dir_), Log(rank)));
  }
  for (int rank = 0; rank < kStepRanks; ++rank) {
    const auto ready = ranks_[rank]->Hear(MonotonicNow() + kStartLimit);
    if (!ready.ok() || ready->rfind("ready", 0) != 0) {
      return Unavailable("{}, rank {}: {}: {}", name_, rank,
                         ready.ok() ? *ready : Message(ready.status()),
                         Tail(rank));
    }
    std::istringstream fields(*ready);
    std::string field;
    while (std::getline(fields, field, '\t')) {
      const size_t gap = field.find('=');
      if (gap == std::string::npos) continue;
      versions_[field.substr(0, gap)] = field.substr(gap + 1);
    }
  }
  return OkStatus();
}

std::vector<pid_t> Side::pids() const {
  std::vector<pid_t> pids;
  for (const auto& rank : ranks_) pids.push_back(rank->pid());
  return pids;
}

StatusOr<Sample> Side::Run(int steps, Exchanged what) {
  for (auto& rank : ranks_) {
    rank->Say(
        fmt::format("{}{}", steps, what == Exchanged::kWord ? " word" : ""));
  }
  int64_t start = INT64_MAX;
  int64_t end = 0;
  Sample sample;
  for (int rank = 0; rank < kStepRanks; ++rank) {
    const auto line = ranks_[rank]->Hear(MonotonicNow() + kRoundLimit);
    if (!line.ok()) {
      return Unavailable("{}, rank {}: {}: {}", name_, rank,
                         Message(line.status()), Tail(rank));
    }
    int64_t from = 0, to = 0;
    double busy = 0, exposed = 0;
    std::istringstream(*line) >> from >> to >> busy >> exposed;
    start = std::min(start, from);
    end = std::max(end, to);
    sample.busy = std::max(sample.busy, busy / steps);
    sample.exposed = std::max(sample.exposed, exposed / steps);
  }
  sample.seconds = static_cast<double>(end - start) * 1e-9 / steps;
  return sample;
}

StatusOr<RoundOfSide> Side::RunRound(const Turns& turns, bool with_word,
                                     int round) {
  RoundOfSide result;
  for (int i = 0; i < turns.samples; ++i) {
    Sample means[2];
    for (int run = 0; run < 2 * turns.turns; ++run) {
      // Gradients, word, word, gradients, ...
      const bool word = ((run + 1) / 2 + i + round) % 2 == 1;
      if (word && !with_word) continue;
      const Exchanged what = word ? Exchanged::kWord : Exchanged::kGradients;
      if (turns.settles) LOCKSTEP_RETURN_IF_ERROR(Run(1, what).status());
      LOCKSTEP_ASSIGN_OR_RETURN(const Sample sample, Run(turns.steps, what));
      Sample& mean = means[word ? 1 : 0];
      mean.seconds += sample.seconds / turns.turns;
      mean.busy += sample.busy / turns.turns;
      mean.exposed += sample.exposed / turns.turns;
    }
    result.gradients.push_back(means[0]);
    if (with_word) result.word.push_back(means[1]);
  }
  return result;
}

StatusOr<std::vector<StepEnd>> Side::End() {
  for (auto& rank : ranks_) rank->EndInput();
  std::vector<StepEnd> ends;
  for (int rank = 0; rank < kStepRanks; ++rank) {
    const auto line = ranks_[rank]->Hear(MonotonicNow() + kEndLimit);
    std::string word;
    StepEnd end;
    if (line.ok()) {
      std::istringstream(*line) >> word >> end.hash >> end.loss >> end.error;
    }
    if (word != "end" || end.hash.empty()) {
      return Unavailable("{}, rank {}: {}: {}", name_, rank,
                         line.ok() ? *line : Message(line.status()),
                         Tail(rank));
    }
    ends.push_back(end);
  }
  return ends;
}

std::string Side::Log(int rank) const {
  return fmt::format("{}/log-{}", dir_, rank);
}

std::string Side::Tail(int rank) const {
  std::string text;
  if (FILE* file = std::fopen(Log(rank).c_str(), "re")) {
    char block[4096];
    while (size_t size = std::fread(block, 1, sizeof(block), file)) {
      text.append(block, size);
    }
    std::fclose(file);
  }
  return text.size() > 600 ? text.substr(text.size() - 600) : text;
}

StepCheck CheckOurs(const std::vector<StepEnd>& ranks,
                    const StepTolerance& tolerance) {
  double worst = 0;
  bool near = true;  // what is no number is not
  for (const StepEnd& rank : ranks) {
    near = near && rank.error <= tolerance.error;
    worst = std::max(worst, rank.error);
  }
  const bool equal = !ranks.empty() && ranks.front().hash == ranks.back().hash;
  return {
      equal && near,
      fmt::format("ours: ranks {}, gradients within {:.1e} of float64's{}",
                  equal ? "equal" : "DIFFER", worst, near ? "" : ": TOO FAR")};
}

StepCheck CheckPeer(const std::vector<StepEnd>& ranks,
                    const std::vector<StepEnd>& ours,
                    const StepTolerance& tolerance) {
  if (ranks.size() != ours.size() || ranks.empty()) return {};
  const bool equal = ranks.front().hash == ranks.back().hash;
  bool close = true;
  for (size_t i = 0; i < ranks.size(); ++i) {
    close = close && std::abs(ranks[i].loss - ours[i].loss) <=
                         tolerance.loss * std::abs(ours[i].loss);
  }
  return {equal && close,
          fmt::format("peer: ranks {}, losses {:.4f} and {:.4f} beside ours "
                      "{:.4f} and {:.4f}{}",
                      equal ? "equal" : "DIFFER", ranks.front().loss,
                      ranks.back().loss, ours.front().loss, ours.back().loss,
                      close ? "" : ": TOO FAR")};
}

}  // namespace lockstep
