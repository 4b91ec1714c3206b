// The key-value store by which the ranks find each other: it is in the memory
// of rank 0, and the others reach it over TCP.
#ifndef LOCKSTEP_SDK_MPI_STORE_H_
#define LOCKSTEP_SDK_MPI_STORE_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "lockstep/lockstep.h"
#include "sdk/mpi/fail.h"
#include "sdk/mpi/place.h"

namespace lockstep::mpi {

// Thread-safe. Functions return a code; `error` gets the sentence.
class Store {
 public:
  virtual ~Store() = default;
  // ALREADY_EXISTS: a key is written once.
  virtual int32_t Put(const std::string& key, std::string_view value,
                      lockstep_error* error) = 0;
  // Waits until the key is there. DEADLINE_EXCEEDED: it did not come.
  virtual int32_t Get(const std::string& key, Deadline deadline,
                      std::string* value, lockstep_error* error) = 0;
};

class MemoryStore final : public Store {
 public:
  int32_t Put(const std::string& key, std::string_view value,
              lockstep_error* error) override;
  int32_t Get(const std::string& key, Deadline deadline, std::string* value,
              lockstep_error* error) override;

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::map<std::string, std::string> values_;
};

// Rank 0: listens at the place's host and port, on a thread that ends with the
// process, because ranks that are slower may still ask.
int32_t ServeStore(const Place& place, std::unique_ptr<Store>* store,
                   lockstep_error* error);
// The other ranks: waits until rank 0 listens and has agreed that both are of
// one job.
int32_t ReachStore(const Place& place, Deadline deadline,
                   std::unique_ptr<Store>* store, lockstep_error* error);

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_STORE_H_
