#include "server/service/log_stream.h"

#include <algorithm>
#include <deque>

#include "common/base/log_line.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// Well below the 4 MiB that a gRPC message may have.
constexpr size_t kMaxMessageBytes = 1 << 20;
// A reader who follows looks at the job's state at least so often.
constexpr Duration kPoll = std::chrono::milliseconds(500);

int64_t Nanos(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000'000 + time.nanos();
}

}  // namespace

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
      sources_.emplace(source.key, source);
    }
  }
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
  if (!parsed.full) {
    source->partial += parsed.text;
    if (source->partial.size() < kMaxMessageBytes / 2) return;
    parsed.text = {};
  }
  if (parsed.unix_nanos < Nanos(request_.since())) {
    source->partial.clear();
    return;
  }
  v1::LogLine line;
  *line.mutable_time() = ToProto(FromUnixNanos(parsed.unix_nanos));
  line.set_rank(source->key.rank);
  line.set_attempt(source->attempt);
  line.set_stream(parsed.stream == cri::LogStream::kStderr ? "stderr"
                                                           : "stdout");
  line.set_text(source->partial + std::string(parsed.text));
  line.set_task_type(ToProto(source->type));
  line.set_task_index(source->index);
  source->partial.clear();
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
      std::vector<v1::LogLine> lines;
      for (auto& [key, tail] : tails) {
        for (v1::LogLine& line : tail) lines.push_back(std::move(line));
      }
      send(&lines);
      tailing = false;
    }
    if (gone || cancelled()) return OkStatus();
    const bool all_done =
        IsFinal(snapshot.job->state) &&
        std::all_of(sources_.begin(), sources_.end(),
                    [](const auto& entry) { return entry.second.done; });
    if (!request_.follow() || all_done) return OkStatus();
    // A job that ended long ago on a node that is gone has logs without end.
    if (IsFinal(snapshot.job->state) && snapshot.job->end_time &&
        SystemClock().Now().wall - *snapshot.job->end_time >
            std::chrono::seconds(30)) {
      return OkStatus();
    }
    logs_->WaitForChange(seen, SystemClock().Now().mono + kPoll);
  }
}

}  // namespace lockstep
