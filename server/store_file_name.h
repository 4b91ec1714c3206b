// Where the store lies in the coordinator's directory.
#ifndef LOCKSTEP_SERVER_STORE_FILE_NAME_H_
#define LOCKSTEP_SERVER_STORE_FILE_NAME_H_

namespace lockstep::server {

inline constexpr char kStoreFile[] = "coordinator.db";

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_FILE_NAME_H_
