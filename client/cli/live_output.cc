#include "client/cli/live_output.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "client/cli/terminal_text.h"
#include "client/cli/text.h"

namespace lockstep::cli {
namespace {

constexpr Duration kPartialLineInterval = std::chrono::seconds(1);

std::string_view WithoutNewline(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string RedrawableText(std::string_view text, bool colors) {
  std::string out;
  while (!text.empty()) {
    if (text.starts_with("\x1b[")) {
      const size_t end = text.find_first_not_of("0123456789;?", 2);
      const size_t size =
          std::min(end == std::string_view::npos ? end : end + 1, text.size());
      const bool color = size > 2 && text[size - 1] == 'm';
      if (color && colors) out += text.substr(0, size);
      text.remove_prefix(size);
      continue;
    }
    const auto c = static_cast<unsigned char>(text[0]);
    if (c == '\t') {
      out += ' ';
    } else if (c >= 0x20 && c != 0x7f) {
      out += text[0];
    }
    text.remove_prefix(1);
  }
  return out;
}

LiveOutput::~LiveOutput() { Finish(); }

std::ostream& LiveOutput::Stream(bool to_err) const {
  return to_err ? *env_->err : *env_->out;
}

bool LiveOutput::IsTty(bool to_err) const {
  return to_err ? env_->err_is_tty : env_->out_is_tty;
}

bool LiveOutput::LiveOnScreenOf(bool to_err) const {
  // If both are terminals, they are the same one.
  return !live_.empty() && IsTty(to_err);
}

bool LiveOutput::Write(const v1::LogLine& line, const std::string& shown,
                       bool to_err) {
  MutexLock lock(&mu_);
  if (IsTty(to_err)) {
    WriteOnTty(line, shown, to_err);
  } else {
    WritePlain(line, shown, to_err);
  }
  Stream(to_err) << std::flush;
  return Stream(to_err).good();
}

void LiveOutput::WriteOnTty(const v1::LogLine& line, const std::string& shown,
                            bool to_err) {
  Origin origin{line.attempt(), line.rank(), line.stream()};
  if (!line.partial()) {
    // This line completes the redrawn one.
    if (!live_.empty() && origin == live_origin_) {
      Stream(live_on_err_) << kClearLine << std::flush;
      live_.clear();
    }
    return WriteAbove(TerminalText(shown, /*colors=*/true), to_err);
  }
  // The last column stays free, because some terminals wrap there.
  const std::string redrawn =
      RedrawableText(WithoutNewline(shown), /*colors=*/true);
  live_ = Clip(TerminalText(redrawn, /*colors=*/true),
               static_cast<size_t>(std::max(env_->columns, 2) - 1));
  live_origin_ = std::move(origin);
  live_on_err_ = to_err;
  Stream(to_err) << kClearLine << live_;
}

void LiveOutput::WriteAbove(const std::string& text, bool to_err) {
  const bool live = LiveOnScreenOf(to_err);
  Stream(to_err) << (live ? kClearLine : "") << text << std::flush;
  if (live) Stream(live_on_err_) << live_ << std::flush;
}

void LiveOutput::WritePlain(const v1::LogLine& line, const std::string& shown,
                            bool to_err) {
  const Origin origin{line.attempt(), line.rank(), line.stream()};
  const auto before = printed_.find(origin);
  const bool same =
      before != printed_.end() && before->second.text == line.text();
  if (!line.partial()) {
    if (!same) Stream(to_err) << shown;
    if (before != printed_.end()) printed_.erase(before);
    return;
  }
  const MonoTime now = env_->clock->Now().mono;
  if (same || (before != printed_.end() &&
               now - before->second.time < kPartialLineInterval)) {
    return;
  }
  Stream(to_err) << shown;
  printed_[origin] = {line.text(), now};
}

void LiveOutput::PrintNote(const std::string& text) {
  MutexLock lock(&mu_);
  WriteAbove(text, /*to_err=*/true);
}

void LiveOutput::Finish() {
  MutexLock lock(&mu_);
  if (live_.empty()) return;
  Stream(live_on_err_) << "\n" << std::flush;
  live_.clear();
}

}  // namespace lockstep::cli
