#include "server/service/log_stream.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "common/base/log_line.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// Well below the 4 MiB that a gRPC message may have.
constexpr size_t kMaxMessageBytes = 1 << 20;
// Lines are kept in memory until the end of the log is reached.
constexpr int64_t kMaxTail = 100'000;
// A reader who follows looks at the job's state at least so often.
constexpr Duration kPoll = std::chrono::milliseconds(500);
// How long after the end of a job its last lines are waited for: by a reader
// that follows, and by one that only wants what is there.
constexpr Duration kLastLines = std::chrono::seconds(30);
constexpr Duration kLastLinesUnasked = std::chrono::seconds(5);

int64_t Nanos(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000'000 + time.nanos();
}

}  // namespace

Status CheckLogRequest(const v1::StreamLogsRequest& request) {
  if (request.attempt() < 0) {
    return InvalidArgument("attempt: must be 0 (all) or more, not {}",
                           request.attempt());
  }
  if (request.tail() < 0 || request.tail() > kMaxTail) {
    return InvalidArgument("tail: must be 0 (all) to {}, not {}", kMaxTail,
                           request.tail());
  }
  if (request.ranks_size() > kMaxRanks) {
    return InvalidArgument("ranks: names more than {}", kMaxRanks);
  }
  for (const int32_t rank : request.ranks()) {
    if (rank < 0) {
      return InvalidArgument("ranks: must be 0 or more, not {}", rank);
    }
  }
  if (request.has_since()) return FromProto(request.since(), "since").status();
  return OkStatus();
}

void LogStream::AddSources(const Job& job, const std::vector<TaskStatus>& tasks,
                           Generation generation, int32_t attempt) {
  if (request_.attempt() != 0 && request_.attempt() != attempt) return;
  for (const TaskStatus& task : tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (request_.ranks_size() > 0 &&
          std::find(request_.ranks().begin(), request_.ranks().end(),
                    rank.rank) == request_.ranks().end()) {
        continue;
      }
      Source source;
      source.key = {job.uid, generation, rank.rank};
      source.attempt = attempt;
      source.type = task.type;
      source.index = task.index;
      sources_.emplace(source.key, source).first->second.never_started =
          rank.state < RankState::kStarted;
    }
  }
}

Status LogStream::CheckSelection(const Job& job) const {
  int64_t ranks = 0;
  for (const RoleSpec& role : job.spec.roles) {
    ranks += int64_t{role.count} * role.ranks_per_task;
  }
  for (const int32_t rank : request_.ranks()) {
    if (rank >= 0 && rank < ranks) continue;
    return InvalidArgument("ranks: job {} has ranks 0 to {}, not {}",
                           job.spec.name, ranks - 1, rank);
  }
  if (!request_.follow() && request_.attempt() > job.attempt) {
    return InvalidArgument("attempt: job {} has had {} so far, not {}",
                           job.spec.name, job.attempt, request_.attempt());
  }
  return OkStatus();
}

void LogStream::FindSources(const Job& job) {
  for (const Attempt& attempt : job.attempts) {
    AddSources(job, attempt.tasks, attempt.generation, attempt.ordinal);
  }
  AddSources(job, job.tasks, job.generation, job.attempt);
}

void LogStream::TakeLine(Source* source, std::string_view bytes,
                         std::vector<v1::LogLine>* lines) const {
  cri::LogLine parsed;
  std::string error;
  if (!cri::ParseLogLine(bytes, &parsed, &error)) {
    // Not ours to lose: shown as it is.
    parsed = {};
    parsed.text = bytes;
  }
  const std::string name =
      parsed.stream == cri::LogStream::kStderr ? "stderr" : "stdout";
  std::string& partial = source->partial[name];
  partial += parsed.text;
  // A line without end is cut: it must fit a message.
  if (!parsed.full && partial.size() < kMaxMessageBytes / 2) return;
  const std::string text = std::exchange(partial, std::string());
  if (parsed.unix_nanos < Nanos(request_.since())) return;
  v1::LogLine line;
  *line.mutable_time() = ToProto(FromUnixNanos(parsed.unix_nanos));
  line.set_rank(source->key.rank);
  line.set_attempt(source->attempt);
  line.set_stream(name);
  line.set_text(text);
  line.set_task_type(ToProto(source->type));
  line.set_task_index(source->index);
  lines->push_back(std::move(line));
}

StatusOr<bool> LogStream::ReadSource(Source* source,
                                     std::vector<v1::LogLine>* lines) {
  if (source->done) return false;
  const bool ended = logs_->Ended(source->key);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string data,
      logs_->Read(source->key, source->offset, kReadBytes));
  if (data.empty()) {
    if (ended) {
      source->done = true;
      if (!source->rest.empty()) {
        TakeLine(source, source->rest, lines);
        source->rest.clear();
        return true;
      }
    }
    return false;
  }
  source->offset += data.size();
  source->rest += data;
  size_t begin = 0;
  for (size_t end; (end = source->rest.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    TakeLine(source, std::string_view(source->rest).substr(begin, end - begin),
             lines);
  }
  source->rest.erase(0, begin);
  return true;
}

Status LogStream::Run(
    const std::function<bool(const v1::StreamLogsResponse&)>& write,
    const std::function<bool()>& cancelled) {
  bool gone = false;
  const auto send = [&](std::vector<v1::LogLine>* lines) {
    std::stable_sort(lines->begin(), lines->end(),
                     [](const v1::LogLine& a, const v1::LogLine& b) {
                       return Nanos(a.time()) < Nanos(b.time());
                     });
    v1::StreamLogsResponse response;
    size_t bytes = 0;
    for (v1::LogLine& line : *lines) {
      if (bytes > kMaxMessageBytes) {
        gone = gone || !write(response);
        response.Clear();
        bytes = 0;
      }
      bytes += line.text().size() + 64;
      *response.add_lines() = std::move(line);
    }
    if (response.lines_size() > 0) gone = gone || !write(response);
    lines->clear();
  };
  bool tailing = request_.tail() > 0;
  for (;;) {
    const uint64_t seen = logs_->change();
    LOCKSTEP_ASSIGN_OR_RETURN(const JobSnapshot snapshot,
                              coordinator_->GetJob(request_.name()));
    LOCKSTEP_RETURN_IF_ERROR(CheckSelection(*snapshot.job));
    FindSources(*snapshot.job);
    bool more = true;
    std::map<LogKey, std::deque<v1::LogLine>> tails;
    while (more && !gone && !cancelled()) {
      more = false;
      std::vector<v1::LogLine> lines;
      for (auto& [key, source] : sources_) {
        LOCKSTEP_ASSIGN_OR_RETURN(const bool read, ReadSource(&source, &lines));
        more = more || read;
        if (!tailing) continue;
        std::deque<v1::LogLine>& tail = tails[key];
        for (v1::LogLine& line : lines) tail.push_back(std::move(line));
        lines.clear();
        while (static_cast<int64_t>(tail.size()) > request_.tail()) {
          tail.pop_front();
        }
      }
      send(&lines);
    }
    if (tailing) {
      // Of each rank, over its attempts: the newest come last.
      std::map<int32_t, std::deque<v1::LogLine>> ranks;
      for (auto& [key, tail] : tails) {
        std::deque<v1::LogLine>& all = ranks[key.rank];
        for (v1::LogLine& line : tail) all.push_back(std::move(line));
        while (static_cast<int64_t>(all.size()) > request_.tail()) {
          all.pop_front();
        }
      }
      std::vector<v1::LogLine> lines;
      for (auto& [rank, tail] : ranks) {
        for (v1::LogLine& line : tail) lines.push_back(std::move(line));
      }
      send(&lines);
      tailing = false;
    }
    if (gone || cancelled()) return OkStatus();
    const bool all_done =
        IsFinal(snapshot.job->state) &&
        std::all_of(sources_.begin(), sources_.end(), [](const auto& entry) {
          return entry.second.done || entry.second.never_started;
        });
    const bool final = IsFinal(snapshot.job->state);
    if (all_done || (!request_.follow() && !final)) return OkStatus();
    // What a job wrote last is on its way when it ends. One that ended long
    // ago on a node that is gone has logs without end.
    if (final && snapshot.job->end_time &&
        snapshot.time - *snapshot.job->end_time >
            (request_.follow() ? kLastLines : kLastLinesUnasked)) {
      return OkStatus();
    }
    logs_->WaitForChange(seen, SystemClock().Now().mono + kPoll);
  }
}

}  // namespace lockstep
