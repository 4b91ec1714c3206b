#include "common/rpc/audit_log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <sys/stat.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/logging.h"

namespace lockstep {
namespace {

// As in the daemon's log: a caller chooses how long its names are.
constexpr size_t kMaxField = 128;
constexpr size_t kMaxAuditMessage = 512;

std::string Cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

// The file's owner writes, its group reads.
constexpr mode_t kMode = 0640;

}  // namespace

std::string AuditJson(const AuditRecord& record, WallTime now) {
  nlohmann::ordered_json line;
  line["time"] = FormatWallTime(now);
  line["caller"] = record.who.empty() ? "unknown" : record.who;
  if (!record.from.empty()) line["address"] = Cut(record.from, kMaxField);
  line["method"] = Cut(record.method, kMaxField);
  if (!record.target.empty()) line["target"] = Cut(record.target, kMaxField);
  line["code"] = record.answer.ok() ? "OK" : CodeName(record.answer.code());
  line["refused"] = IsRefusal(record.answer);
  if (record.count != 1) line["count"] = record.count;
  if (!record.answer.ok()) {
    line["message"] =
        Cut(std::string(Message(record.answer)), kMaxAuditMessage);
  }
  // ASCII only: no terminal and no log shipper takes a byte of it for its own.
  return line.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::json::error_handler_t::replace);
}

struct AuditLog::Sink {
  explicit Sink(const AuditLogOptions& options)
      : file(options.path, options.max_bytes, options.keep,
             /*rotate_on_open=*/false, OnOpen()) {
    file.set_formatter(std::make_unique<spdlog::pattern_formatter>("%v"));
  }
  static spdlog::file_event_handlers OnOpen() {
    spdlog::file_event_handlers handlers;
    handlers.after_open = [](const std::string& /*path*/, std::FILE* opened) {
      struct stat info = {};
      if (::fstat(::fileno(opened), &info) == 0 && S_ISREG(info.st_mode)) {
        // A file that keeps the mode of the umask is still an audit log.
        (void)::fchmod(::fileno(opened), kMode);
      }
    };
    return handlers;
  }

  spdlog::sinks::rotating_file_sink_mt file;
};

StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(AuditLogOptions options) {
  try {
    auto sink = std::make_unique<Sink>(options);
    return std::unique_ptr<AuditLog>(
        new AuditLog(std::move(options.path), std::move(sink)));
  } catch (const spdlog::spdlog_ex& e) {
    return FailedPrecondition("the audit log {} cannot be opened: {}",
                              options.path, e.what());
  }
}

AuditLog::AuditLog(std::string path, std::unique_ptr<Sink> sink)
    : path_(std::move(path)), sink_(std::move(sink)) {}

AuditLog::~AuditLog() = default;

void AuditLog::Write(const AuditRecord& record, WallTime now) {
  const std::string line = AuditJson(record, now);
  try {
    sink_->file.log(
        spdlog::details::log_msg("audit", spdlog::level::info, line));
    sink_->file.flush();
  } catch (const spdlog::spdlog_ex& e) {
    LOG_ERROR("the audit log {} cannot be written ({}): {}", path_, e.what(),
              AuditLine(record));
  }
}

}  // namespace lockstep
