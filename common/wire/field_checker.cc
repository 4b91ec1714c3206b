#include "common/wire/field_checker.h"

#include <arpa/inet.h>

#include <cctype>
#include <cmath>

#include "common/model/names.h"

namespace lockstep {

namespace {

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

bool IsIpAddress(const std::string& text) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

thread_local bool without_limits = false;

}  // namespace

WithoutLimits::WithoutLimits() : before_(without_limits) {
  without_limits = true;
}

WithoutLimits::~WithoutLimits() { without_limits = before_; }

std::string Quote(std::string_view text) {
  constexpr size_t kShown = 64;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    if (IsControl(c) || static_cast<unsigned char>(c) >= 0x80) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  out += '"';
  if (text.size() > kShown) {
    out += fmt::format("... ({} bytes)", text.size());
  }
  return out;
}

std::string FieldChecker::At(std::string_view field) const {
  std::string path =
      parent_ == nullptr ? std::string(path_) : parent_->At(path_);
  if (index_ >= 0) path += fmt::format("[{}]", index_);
  if (field.empty()) return path;
  if (!path.empty()) path += '.';
  for (size_t i = 0; i < field.size(); ++i) {
    if (style_ == PathStyle::kJson && field[i] == '_' && i + 1 < field.size()) {
      path += static_cast<char>(
          std::toupper(static_cast<unsigned char>(field[++i])));
    } else {
      path += field[i];
    }
  }
  return path;
}

void FieldChecker::Fail(std::string_view field, std::string_view sentence) {
  if (ok()) *status_ = InvalidArgument("{}: {}", At(field), sentence);
}

void FieldChecker::Exceed(std::string_view field, std::string_view sentence) {
  if (!without_limits) Fail(field, sentence);
}

void FieldChecker::Range(std::string_view field, int64_t value, int64_t low,
                         int64_t high) {
  if (value < low || value > high) {
    Exceed(field, fmt::format("must be {} to {}, not {}", low, high, value));
  }
}

void FieldChecker::Number(std::string_view field, double value, double low,
                          double high) {
  if (!std::isfinite(value)) {
    Fail(field,
         fmt::format("must be {:g} to {:g}, not {:g}", low, high, value));
  } else if (value < low || value > high) {
    Exceed(field,
           fmt::format("must be {:g} to {:g}, not {:g}", low, high, value));
  }
}

void FieldChecker::Count(std::string_view field, size_t count, size_t most) {
  if (count > most) {
    Exceed(field,
           fmt::format("has {} entries; at most {} are allowed", count, most));
  }
}

void FieldChecker::Bytes(std::string_view field, std::string_view text,
                         size_t most) {
  if (text.size() > most) {
    Exceed(field, fmt::format("has {} bytes; at most {} are allowed",
                              text.size(), most));
  } else if (text.find('\0') != std::string_view::npos) {
    Exceed(field, "holds a NUL byte");
  }
}

void FieldChecker::Text(std::string_view field, std::string_view text,
                        size_t most) {
  Bytes(field, text, most);
  if (!ok()) return;
  for (const char c : text) {
    if (IsControl(c) && c != '\n' && c != '\t') {
      Exceed(field, fmt::format("{} holds a control character", Quote(text)));
      return;
    }
  }
}

void FieldChecker::Path(std::string_view field, std::string_view path) {
  constexpr size_t kPathMax = 4095;  // PATH_MAX without its NUL.
  if (path.empty()) return;
  Bytes(field, path, kPathMax);
  if (!ok()) return;
  if (path.front() != '/') {
    Exceed(field, fmt::format("must be an absolute path, not {}", Quote(path)));
    return;
  }
  for (const char c : path) {
    if (IsControl(c)) {
      Exceed(field, fmt::format("{} holds a control character", Quote(path)));
      return;
    }
  }
  for (size_t at = 0; at != std::string_view::npos;) {
    const size_t next = path.find('/', at + 1);
    if (path.substr(at + 1, next - at - 1) == "..") {
      Exceed(field, fmt::format("{} must not go up by \"..\"", Quote(path)));
      return;
    }
    at = next;
  }
}

void FieldChecker::JobName(std::string_view field, std::string_view name) {
  if (!IsJobName(name)) {
    Exceed(field, fmt::format("{} is not a job name: a letter, then at most 62 "
                              "letters, digits, \"_\" or \"-\"",
                              Quote(name)));
  }
}

void FieldChecker::NodeName(std::string_view field, std::string_view name) {
  if (!IsNodeName(name)) {
    Exceed(field, fmt::format("{} is not a node name: at most 63 lower-case "
                              "letters, digits or \"-\", with no \"-\" at "
                              "either end",
                              Quote(name)));
  }
}

void FieldChecker::IpAddress(std::string_view field, const std::string& text) {
  Text(field, text, 64);
  if (ok() && !IsIpAddress(text)) {
    Exceed(field, Quote(text) + " is not an IP address");
  }
}

}  // namespace lockstep
