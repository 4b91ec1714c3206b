#include "worker/agent/prepare/module_answers.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace lockstep::worker::agent {

std::optional<std::string> KeyOf(const ModuleQuestion& question) {
  struct stat info {};
  if (stat(question.interpreter.c_str(), &info) != 0) return std::nullopt;
  std::string key = fmt::format(
      "{}\n{}:{} {} {}.{} {}.{}\n{}\n{}\n{}\n", question.interpreter,
      info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
      info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec,
      question.user ? std::to_string(*question.user) : "-", question.module,
      question.allow_index);
  for (const Package& package : question.packages) {
    key += fmt::format("{} {} {}\n", package.digest,
                       static_cast<int>(package.format), package.file_name);
  }
  return key;
}

bool ModuleAnswers::WasFound(const std::string& key) const {
  MutexLock lock(&mu_);
  return found_.contains(key);
}

void ModuleAnswers::Found(const std::string& key) {
  MutexLock lock(&mu_);
  if (!found_.insert(key).second) return;
  order_.push_back(key);
  if (order_.size() <= most_) return;
  found_.erase(order_.front());
  order_.pop_front();
}

}  // namespace lockstep::worker::agent
