// Lets the link's thread write into the rank's page that the process runs, and
// for which peer the rank waits.
#ifndef LOCKSTEP_WORKER_RUNTIME_WAIT_PAGE_H_
#define LOCKSTEP_WORKER_RUNTIME_WAIT_PAGE_H_

#include <atomic>

#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

// Open by any thread, once; Show by one thread, which may begin before.
class WaitPage {
 public:
  // `page` outlives every Show. Null: there is none.
  void Open(task::PageWriter* page) {
    page_.store(page, std::memory_order_release);
  }
  void Show(const task::RankWait& wait) {
    task::PageWriter* const page = page_.load(std::memory_order_acquire);
    if (page != nullptr) page->SetWait(wait);
  }

 private:
  std::atomic<task::PageWriter*> page_ = nullptr;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_WAIT_PAGE_H_
