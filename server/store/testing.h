// For tests: values with every field set to something other than its default.
#ifndef LOCKSTEP_SERVER_STORE_TESTING_H_
#define LOCKSTEP_SERVER_STORE_TESTING_H_

#include "server/store/store.h"

namespace lockstep {

Job FullJob();
NodeRecord FullNode();
AnsweredRequest FullRequest();

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STORE_TESTING_H_
