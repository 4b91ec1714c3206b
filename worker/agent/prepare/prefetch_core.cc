#include "worker/agent/prepare/prefetch_core.h"

#include <algorithm>
#include <utility>

namespace lockstep::worker::agent {

std::string PrefetchCore::KeyOf(const ImageContent& image) {
  return image.image + " " + image.id + " " + image.digest;
}

std::string PrefetchCore::KeyOf(const Item& item) {
  return item.package ? KeyOf(*item.package) : KeyOf(*item.status.image);
}

PrefetchCore::Item* PrefetchCore::Find(const std::string& key) {
  for (Item& item : items_) {
    if (KeyOf(item) == key) return &item;
  }
  return nullptr;
}

const PrefetchCore::Item* PrefetchCore::Find(const std::string& key) const {
  for (const Item& item : items_) {
    if (KeyOf(item) == key) return &item;
  }
  return nullptr;
}

void PrefetchCore::Want(const Prefetch& wanted, MonoTime now) {
  std::vector<Item> items;
  const auto add = [&](Item fresh) {
    Item* known = Find(KeyOf(fresh));
    if (known == nullptr) {
      items.push_back(std::move(fresh));
      return;
    }
    known->wanted = true;
    items.push_back(std::move(*known));
    // It is not found a second time.
    known->status.image = ImageContent{};
    known->package.reset();
  };
  for (const ImageContent& image : wanted.images) {
    Item item;
    item.status.image = image;
    add(std::move(item));
  }
  for (const Package& package : wanted.packages) {
    Item item;
    item.package = package;
    item.status.package_digest = package.digest;
    add(std::move(item));
  }
  for (Item& old : items_) {
    const bool moved =
        !old.package && (!old.status.image || old.status.image->image.empty());
    if (moved || !old.under_way) continue;
    if (old.wanted) old.unwanted_since = now;
    old.wanted = false;
    items.push_back(std::move(old));
  }
  items_ = std::move(items);
}

PrefetchCore::Item* PrefetchCore::Begin(bool image, MonoTime now) {
  Item* next = nullptr;
  for (Item& item : items_) {
    if (item.package.has_value() == image) continue;
    if (item.under_way) return nullptr;
    if (next == nullptr && !item.status.ready && item.next_try <= now) {
      next = &item;
    }
  }
  if (next != nullptr) next->under_way = true;
  return next;
}

std::optional<ImageContent> PrefetchCore::BeginImage(MonoTime now) {
  const Item* item = Begin(true, now);
  return item == nullptr ? std::nullopt : item->status.image;
}

std::optional<Package> PrefetchCore::BeginPackage(MonoTime now) {
  const Item* item = Begin(false, now);
  return item == nullptr ? std::nullopt : item->package;
}

void PrefetchCore::OnDone(const std::string& key, Result result, MonoTime now) {
  Item* item = Find(key);
  if (item == nullptr || !item->under_way) return;
  if (!item->wanted) {
    std::erase_if(items_, [&](const Item& i) { return KeyOf(i) == key; });
    return;
  }
  item->under_way = false;
  // Wanted again just as it was being ended.
  if (result.status.code() == StatusCode::kCancelled) return;
  Prefetched& status = item->status;
  if (!result.status.ok()) {
    status.error = Message(result.status);
    item->backoff = item->backoff == Duration{}
                        ? times_.first
                        : std::min(item->backoff * 2, times_.most);
    item->next_try = now + item->backoff;
    return;
  }
  status.error.clear();
  status.ready = true;
  status.content = std::move(result.content);
  status.fetched = result.fetched;
  status.duration = result.duration;
}

bool PrefetchCore::IsUnwanted(const std::string& key, MonoTime now) const {
  const Item* item = Find(key);
  return item == nullptr ||
         (!item->wanted && now - item->unwanted_since >= times_.linger);
}

bool PrefetchCore::Wants(const std::string& key) const {
  const Item* item = Find(key);
  return item != nullptr && item->wanted;
}

std::optional<MonoTime> PrefetchCore::NextDeadline() const {
  std::optional<MonoTime> next;
  for (const Item& item : items_) {
    std::optional<MonoTime> due;
    if (!item.wanted) {
      due = item.unwanted_since + times_.linger;
    } else if (!item.status.ready && !item.under_way) {
      due = item.next_try;
    }
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

std::vector<Prefetched> PrefetchCore::Report() const {
  std::vector<Prefetched> report;
  for (const Item& item : items_) {
    if (item.wanted) report.push_back(item.status);
  }
  return report;
}

}  // namespace lockstep::worker::agent
