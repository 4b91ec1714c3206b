/* The C interface of lockstep: liblockstep.so.0.
 *
 * For programs in any language that train on lockstep's workers, and for their
 * collectives anywhere. It compiles as C11 and as C++. It needs no library but
 * libc, starts no thread before a call asks for one, and changes no signal
 * handler.
 *
 * Conventions
 *   - Objects are opaque. The function that frees one takes NULL, too.
 *   - Structs begin with `size`: set it to sizeof the struct that you compiled.
 *     A newer library takes the shorter structs of older programs; an older
 *     library refuses a longer one whose additional bytes are not zero.
 *   - A function that can fail returns a code of google.rpc.Code, 0 on success.
 *     Where `error` is not NULL, it receives the code, a reason for programs
 *     ("PEER_LOST", may be empty) and one sentence for people.
 *   - Times are nanoseconds; a negative timeout means the default.
 *   - Texts are UTF-8 and end with NUL. A text that the library returns lives
 *     as long as the object that it belongs to.
 *   - Numbers of enums only grow at the end.
 *   - A process that forked after it made an object must not use that object:
 *     every call fails with FAILED_PRECONDITION there.
 */
#ifndef LOCKSTEP_LOCKSTEP_H_
#define LOCKSTEP_LOCKSTEP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LOCKSTEP_API __attribute__((visibility("default")))
#else
#define LOCKSTEP_API
#endif

/* The codes of google.rpc.Code that are in use. */
enum {
  LOCKSTEP_OK = 0,
  LOCKSTEP_CANCELLED = 1,
  LOCKSTEP_INVALID_ARGUMENT = 3,
  LOCKSTEP_DEADLINE_EXCEEDED = 4,
  LOCKSTEP_NOT_FOUND = 5,
  LOCKSTEP_ALREADY_EXISTS = 6,
  LOCKSTEP_PERMISSION_DENIED = 7,
  LOCKSTEP_RESOURCE_EXHAUSTED = 8,
  LOCKSTEP_FAILED_PRECONDITION = 9,
  LOCKSTEP_ABORTED = 10,
  LOCKSTEP_OUT_OF_RANGE = 11,
  LOCKSTEP_UNIMPLEMENTED = 12,
  LOCKSTEP_INTERNAL = 13,
  LOCKSTEP_UNAVAILABLE = 14,
  LOCKSTEP_DATA_LOSS = 15
};

/* Fixed in size: no `size` field. */
typedef struct lockstep_error {
  int32_t code;
  char reason[60];
  char message[2048];
} lockstep_error;

/* The version of the library, "0.1.0": that of the daemons it is built with. */
LOCKSTEP_API const char* lockstep_version(void);

/* ---- Groups: collectives over the caller's memory ------------------------
 *
 * A group is a fixed set of ranks. Ranks on one host reduce in shared memory,
 * ranks on different hosts over TCP, mixed ones hierarchically.
 *
 * An operation runs on the group's thread, behind the operations that were
 * started before it. Every rank starts the same collectives in the same order.
 * Sends and receives are not a part of that order: each pair of ranks has a
 * channel of its own in each direction, and a thread for it, from the first
 * message on.
 *
 * Messages arrive in the order in which they were sent. A receive takes the
 * first one with its tag, which must have its type and size: else the receive
 * fails alone with FAILED_PRECONDITION, and the message is lost. The library
 * keeps messages that no receive has come for, up to 1 GiB in a channel. A send
 * ends when the other rank has taken the message or keeps it, so the other rank
 * must receive from this one at all, with whatever tag. Every other error of a
 * message, a timeout among them, breaks its channel, and that only. Timeouts of
 * messages count from when they are the first of their channel; while the two
 * ranks meet for the first time, they may be a second late.
 *
 * Threads: every function may be called from any thread. The order of two calls
 * that run at the same time is not defined. The process must ignore SIGPIPE
 * (Python does): else a group with peers does not form.
 *
 * Errors: after the first failed collective the group is broken, and every
 * later operation returns the same error. UNAVAILABLE: a peer is gone (its rank
 * is named). DEADLINE_EXCEEDED: a peer did not come in time.
 * FAILED_PRECONDITION: the ranks started different operations; both are named.
 * ABORTED: lockstep_group_abort. INVALID_ARGUMENT is this rank's own mistake;
 * nothing was sent, and the group stays usable.
 */
typedef struct lockstep_group lockstep_group;
typedef struct lockstep_work lockstep_work;

/* A key-value store that all ranks of a group reach, used while the group forms
 * and when two ranks exchange their first message. It is for one group alone:
 * put a prefix of the group before its keys. A key is written once, has at most
 * 256 bytes, its value at most 32 KiB. The functions may be called from
 * any thread of the library, several at once. */
typedef struct lockstep_store {
  size_t size;
  void* context;
  /* Returns a code. */
  int32_t (*put)(void* context, const char* key, const void* value,
                 size_t bytes);
  /* Waits until the key is there, at most `timeout_ns`, then copies its value
   * to `value` (room for `capacity` bytes) and sets *bytes. DEADLINE_EXCEEDED:
   * the key did not come. */
  int32_t (*get)(void* context, const char* key, int64_t timeout_ns,
                 void* value, size_t capacity, size_t* bytes);
} lockstep_store;

typedef struct lockstep_group_options {
  size_t size;
  int32_t rank;
  int32_t world_size;
  /* Names the group in errors; NULL: "group". */
  const char* label;
  /* "auto" (or NULL), "shm", "tcp", "hierarchical". */
  const char* backend;
  /* The address of this host that the other hosts reach; NULL: 127.0.0.1. */
  const char* bind_address;
  /* A secret that all ranks know, and that a stranger must not: they prove it
   * to each other. NULL: the ranks prove nothing. */
  const void* key;
  size_t key_bytes;
  /* For the group to form (default 30 s), and for one operation from its start
   * on the group's thread (default 300 s). */
  int64_t forming_timeout_ns;
  int64_t operation_timeout_ns;
  /* Copied; `context` must live as long as the group. */
  const lockstep_store* store;
} lockstep_group_options;

/* Blocks until all ranks have come. */
LOCKSTEP_API int32_t lockstep_group_form(const lockstep_group_options* options,
                                         lockstep_group** group,
                                         lockstep_error* error);
/* Ends what is under way with ABORTED, waits for that, and frees the group. Its
 * works must have been freed, and no call of the group may run but
 * lockstep_group_next_ended, which returns ABORTED first. */
LOCKSTEP_API void lockstep_group_free(lockstep_group* group);
/* Ends every operation, now and later, with ABORTED and `reason`, within 50 ms.
 */
LOCKSTEP_API void lockstep_group_abort(lockstep_group* group,
                                       const char* reason);
/* One line that says which backend was taken, how it reduces, and why. */
LOCKSTEP_API const char* lockstep_group_describe(const lockstep_group* group);

typedef enum lockstep_type {
  LOCKSTEP_FLOAT32 = 0,
  LOCKSTEP_FLOAT64 = 1,
  LOCKSTEP_FLOAT16 = 2,
  LOCKSTEP_BFLOAT16 = 3,
  LOCKSTEP_INT32 = 4,
  LOCKSTEP_INT64 = 5,
  LOCKSTEP_UINT8 = 6,
  LOCKSTEP_INT8 = 7,
  LOCKSTEP_INT16 = 8,
  /* One byte, 0 or 1. SUM and MAX are "or", PRODUCT and MIN are "and". */
  LOCKSTEP_BOOL = 9
} lockstep_type;

typedef enum lockstep_reduce_op {
  LOCKSTEP_SUM = 0,
  LOCKSTEP_MIN = 1,
  LOCKSTEP_MAX = 2,
  /* The sum divided by the number of ranks; for floats. */
  LOCKSTEP_MEAN = 3,
  LOCKSTEP_PRODUCT = 4
} lockstep_reduce_op;

/* n is the number of ranks, r this rank. The input and the output are each a
 * list of spans, which count as one array in their order: a list of tensors
 * needs no copy by the caller. All spans are of one type and aligned to it. An
 * input may be the output (same spans), and that of an all-gather may be part r
 * of the output; else they must not overlap.
 *
 * An all-reduce, a broadcast or an all-gather of one output span runs in the
 * caller's memory. Lists are copied through 32 MiB of the library's, except
 * that an all-gather into a longer list has as much for a while. A gather, a
 * scatter and an all-to-all move all parts to all ranks: n times what is
 * needed. Results are the same bits on all ranks and in every run; 16-bit
 * floats are added and multiplied as float32, and rounded once on each host and
 * once between the hosts. Integers wrap around. */
typedef enum lockstep_collective {
  /* Input and output of the same size on all ranks. */
  LOCKSTEP_ALL_REDUCE = 0,
  /* As all-reduce; only the root has an output. */
  LOCKSTEP_REDUCE = 1,
  /* The root has an input, the others an output of its size. */
  LOCKSTEP_BROADCAST = 2,
  /* The output is the input of rank 0, of rank 1 ...; all inputs of one size.
   */
  LOCKSTEP_ALL_GATHER = 3,
  /* The input has n equal parts; the output is the reduction of part r. */
  LOCKSTEP_REDUCE_SCATTER = 4,
  /* As all-gather; only the root has an output. */
  LOCKSTEP_GATHER = 5,
  /* The root's input has n equal parts; every rank's output is part r. */
  LOCKSTEP_SCATTER = 6,
  /* Part p of the input goes to rank p; part p of the output comes from rank p.
   * The parts are equal, or as input_splits and output_splits say. */
  LOCKSTEP_ALL_TO_ALL = 7,
  /* No input and no output. */
  LOCKSTEP_BARRIER = 8,
  /* To and from rank `root`, with `tag`; not a part of the order. */
  LOCKSTEP_SEND = 9,
  LOCKSTEP_RECV = 10
} lockstep_collective;

typedef struct lockstep_span {
  void* data;
  uint64_t count; /* elements */
} lockstep_span;

typedef struct lockstep_operation {
  size_t size;
  int32_t collective; /* lockstep_collective */
  int32_t type;       /* lockstep_type */
  int32_t op;         /* lockstep_reduce_op */
  int32_t root;       /* also the peer of a send or receive */
  uint32_t tag;
  uint32_t reserved; /* 0 */
  /* The lists are copied; the memory must stay until the operation ended. */
  const lockstep_span* input;
  size_t input_spans;
  const lockstep_span* output;
  size_t output_spans;
  /* NULL, or n numbers of elements each. */
  const uint64_t* input_splits;
  const uint64_t* output_splits;
  /* For this operation, from its start on the group's thread. 0 or less: the
   * group's. */
  int64_t timeout_ns;
  /* Comes back from lockstep_group_next_ended. 0: it does not. */
  uint64_t cookie;
} lockstep_operation;

/* Starts `operation` and returns at once. */
LOCKSTEP_API int32_t lockstep_group_start(lockstep_group* group,
                                          const lockstep_operation* operation,
                                          lockstep_work** work,
                                          lockstep_error* error);
/* Start and wait in one. A collective without a cookie runs on the calling
 * thread where no other one is under way. */
LOCKSTEP_API int32_t lockstep_group_run(lockstep_group* group,
                                        const lockstep_operation* operation,
                                        lockstep_error* error);
/* Waits for the end and returns the operation's result. DEADLINE_EXCEEDED with
 * the reason NOT_ENDED: `timeout_ns` passed, and the operation goes on. 0 asks
 * and does not wait; negative: until the operation's own timeout. */
LOCKSTEP_API int32_t lockstep_work_wait(lockstep_work* work, int64_t timeout_ns,
                                        lockstep_error* error);
/* 1: it has ended. */
LOCKSTEP_API int32_t lockstep_work_ended(const lockstep_work* work);
/* Frees the handle. The operation goes on. */
LOCKSTEP_API void lockstep_work_free(lockstep_work* work);
/* For one thread that serves callbacks: waits until an operation that was
 * started with a cookie has ended, and returns the cookies of up to `capacity`
 * of them, in the order of their ends. 0 of them: `timeout_ns` passed;
 * negative: for ever. ABORTED: the group was aborted or is being freed, and no
 * cookie is left. To end such a thread, abort the group and join the thread;
 * then free the group. */
LOCKSTEP_API int32_t lockstep_group_next_ended(lockstep_group* group,
                                               int64_t timeout_ns,
                                               uint64_t* cookies,
                                               size_t capacity, size_t* count);

/* ---- Session: a rank's membership in its job ------------------------------
 *
 * One for each process. A process that lockstep did not start is rank 0 of 1,
 * and every call works. Joining is light: it maps the rank's status page and
 * connects to the worker daemon on this host. It may come after imports and
 * after threads were started. Every function may be called from any thread.
 */
typedef struct lockstep_session lockstep_session;

typedef struct lockstep_join_options {
  size_t size;
  /* For the daemon's answer; default 10 s. */
  int64_t timeout_ns;
  /* 1: this process stays when other ranks are lost, see "Recoveries". */
  int32_t recoverable;
  int32_t reserved; /* 0 */
} lockstep_join_options;

typedef struct lockstep_session_info {
  size_t size;
  const char* job;
  const char* role; /* "chief", "worker", "ps", "evaluator"; "" outside */
  const char* output_directory; /* "" where there is none */
  const int32_t* gpus;
  uint64_t gpu_count;
  double cpus; /* 0: not limited */
  uint64_t generation;
  int64_t checkpoint_interval_steps; /* 0: none */
  int32_t checkpoint_keep;
  int32_t task_index;
  int32_t rank; /* -1: parameter servers and evaluators have none */
  int32_t world_size;
  int32_t local_rank;
  int32_t local_world_size;
  int32_t attempt;
  int32_t managed; /* 0: lockstep did not start this process */
} lockstep_session_info;

/* ALREADY_EXISTS: this process has joined. PERMISSION_DENIED: the daemon
 * refuses this process, and says why; where this library is of a version that
 * it does not understand, the sentence has both versions. */
LOCKSTEP_API int32_t lockstep_join(const lockstep_join_options* options,
                                   lockstep_session** session,
                                   lockstep_error* error);
/* Hands over what is queued, for at most a second, and leaves the job. Calls
 * that wait return, and later ones fail, with FAILED_PRECONDITION. */
LOCKSTEP_API int32_t lockstep_session_close(lockstep_session* session,
                                            lockstep_error* error);
/* Closes the session and frees it. No other call of it may be under way. */
LOCKSTEP_API void lockstep_session_free(lockstep_session* session);
LOCKSTEP_API int32_t lockstep_session_get_info(const lockstep_session* session,
                                               lockstep_session_info* info,
                                               lockstep_error* error);

/* 1: this rank speaks for all and writes what the job saves. That is rank 0, or
 * while it is away the first rank that is not. Changes only in
 * lockstep_session_joined. */
LOCKSTEP_API int32_t lockstep_session_is_chief(const lockstep_session* session);

typedef enum lockstep_phase {
  LOCKSTEP_PHASE_INPUT = 0,
  LOCKSTEP_PHASE_COMPUTE = 1,
  LOCKSTEP_PHASE_ALLREDUCE = 2,
  LOCKSTEP_PHASE_OPTIMIZER = 4,
  LOCKSTEP_PHASE_CHECKPOINT = 5,
  LOCKSTEP_PHASE_EVALUATION = 6,
  LOCKSTEP_PHASE_OTHER = 7,
  /* Building kernels and graphs: torch.compile, XLA. */
  LOCKSTEP_PHASE_COMPILE = 8
} lockstep_phase;

/* From now on the time of this rank counts for `phase`. Returns the phase
 * before, or -1 for a number that is not a phase. Makes no system call. */
LOCKSTEP_API int32_t lockstep_session_enter(lockstep_session* session,
                                            int32_t phase);

typedef struct lockstep_step {
  size_t size;
  /* The number of the step that ended. -1: the last one and 1. */
  int64_t step;
  uint64_t samples; /* of this rank in this step; 0: not known */
  double loss;      /* where has_loss is not 0 */
  double learning_rate;
  int32_t has_loss;
  int32_t has_learning_rate;
} lockstep_step;
/* A training step has ended. Makes no system call. */
LOCKSTEP_API int32_t lockstep_session_step(lockstep_session* session,
                                           const lockstep_step* step,
                                           lockstep_error* error);
/* For progress bars: 0 where it is not known. */
LOCKSTEP_API int32_t lockstep_session_plan(lockstep_session* session,
                                           uint64_t total_steps, uint64_t epoch,
                                           uint64_t global_batch,
                                           lockstep_error* error);
/* A measured value by name, shown with the job: ("accuracy", 0.891). At most 16
 * names of at most 31 bytes. */
LOCKSTEP_API int32_t lockstep_session_report(lockstep_session* session,
                                             const char* name, double value,
                                             lockstep_error* error);
/* A sentence for the job's events. */
LOCKSTEP_API int32_t lockstep_session_event(lockstep_session* session,
                                            const char* sentence,
                                            lockstep_error* error);
/* A file or directory that this rank made. */
LOCKSTEP_API int32_t lockstep_session_artifact(lockstep_session* session,
                                               const char* name,
                                               const char* path,
                                               lockstep_error* error);
/* The chief has published a complete checkpoint of `step` at `path`. */
LOCKSTEP_API int32_t lockstep_session_checkpoint_saved(
    lockstep_session* session, int64_t step, const char* path, int64_t bytes,
    lockstep_error* error);
/* The step from which this rank resumed; 0: from the start. */
LOCKSTEP_API int32_t lockstep_session_resumed(lockstep_session* session,
                                              int64_t step,
                                              lockstep_error* error);
/* Orders from outside: `lockstep jobs checkpoint`, `jobs cancel --save`,
 * drains. Ask after each step, on every rank: the answers are about the last
 * step, and the same on all ranks. A call makes no system call and takes less
 * than a microsecond, unless an order is being agreed on for this very step;
 * then it waits for the decision. DEADLINE_EXCEEDED: none came within 5
 * minutes, because the worker daemon or the coordinator is away. ABORTED: the
 * generation ended.
 *
 * *due is 1 once for each order, also before a stop: save a checkpoint now. */
LOCKSTEP_API int32_t lockstep_session_checkpoint_due(lockstep_session* session,
                                                     int32_t* due,
                                                     lockstep_error* error);
/* *stop is 1 from the agreed step on: end now, with the exit code 0. */
LOCKSTEP_API int32_t lockstep_session_should_stop(lockstep_session* session,
                                                  int32_t* stop,
                                                  lockstep_error* error);

/* ---- Recoveries -----------------------------------------------------------
 *
 * When a rank of a running job is lost and every rank has joined as
 * recoverable, the other processes stay. The coordinator starts the lost ranks
 * again and announces a recovery: a number, from 1 in each generation. All
 * ranks then form a group for it, and those with a state give it to the others:
 *
 *   lockstep_session_recovery(session, &n, ...)   0 at the first start
 *   loop:
 *     form a group over lockstep_session_put and _get of recovery n
 *     lockstep_group_level(group, ...)
 *     lockstep_session_joined(session, n, ...)
 *     train, until an operation fails with UNAVAILABLE, ABORTED or
 *       DEADLINE_EXCEEDED; abort the group
 *     lockstep_session_park(session, n, ...); free the group
 *     lockstep_digest_of(...): others may take a while to come
 *     lockstep_session_await_recovery(session, n, ..., &n, ...)
 *
 * A process that is not of a job has the recovery 0 and no rendezvous. */

/* The newest recovery that was announced; 0: none. */
LOCKSTEP_API int32_t lockstep_session_recovery(lockstep_session* session,
                                               uint32_t* recovery,
                                               lockstep_error* error);
/* This process has left the group of recovery `left`, in which it lost `count`
 * ranks (none: it does not know which), and waits for the next recovery. */
LOCKSTEP_API int32_t lockstep_session_park(lockstep_session* session,
                                           uint32_t left,
                                           const int32_t* lost_ranks,
                                           size_t count, lockstep_error* error);
/* Waits for a recovery above `above`. ABORTED: the generation ended.
 * DEADLINE_EXCEEDED: none came. */
LOCKSTEP_API int32_t lockstep_session_await_recovery(lockstep_session* session,
                                                     uint32_t above,
                                                     int64_t timeout_ns,
                                                     uint32_t* recovery,
                                                     lockstep_error* error);
/* This process trains in the group of `recovery`, also of recovery 0. */
LOCKSTEP_API int32_t lockstep_session_joined(lockstep_session* session,
                                             uint32_t recovery,
                                             lockstep_error* error);
/* The program can train while ranks are away: said with the next
 * lockstep_session_joined. By default it cannot, and the others hold their
 * state until all ranks are back. */
LOCKSTEP_API int32_t lockstep_session_set_elastic(lockstep_session* session,
                                                  int32_t elastic,
                                                  lockstep_error* error);
/* The ranks that are away: not members of the group of `recovery`, ascending.
 * The members are numbered in it in the order of their ranks. A process that is
 * away itself parks and waits for the next recovery, and its state is lost.
 * `ranks` has room for `capacity`, *count is their number. ABORTED: a later
 * recovery was announced, or the generation ended. INVALID_ARGUMENT: there is
 * not enough room. */
LOCKSTEP_API int32_t lockstep_session_away(lockstep_session* session,
                                           uint32_t recovery, int32_t* ranks,
                                           size_t capacity, size_t* count,
                                           lockstep_error* error);
/* As lockstep_store, among the ranks of `recovery`. ABORTED: a later recovery
 * was announced, or the generation ended. */
LOCKSTEP_API int32_t lockstep_session_put(lockstep_session* session,
                                          uint32_t recovery, const char* key,
                                          const void* value, size_t bytes,
                                          lockstep_error* error);
LOCKSTEP_API int32_t lockstep_session_get(lockstep_session* session,
                                          uint32_t recovery, const char* key,
                                          int64_t timeout_ns, void* value,
                                          size_t capacity, size_t* bytes,
                                          lockstep_error* error);

/* What ranks compare of their states. */
typedef struct lockstep_digest lockstep_digest;
/* Reads all of the memory, whose counts are bytes: 1 GiB takes some 0.2 s. */
LOCKSTEP_API int32_t lockstep_digest_of(const lockstep_span* memory,
                                        size_t spans, lockstep_digest** digest,
                                        lockstep_error* error);
/* NULL is allowed. */
LOCKSTEP_API void lockstep_digest_free(lockstep_digest* digest);

typedef struct lockstep_level {
  size_t size;
  /* The memory of the state: number and sizes are the same on all ranks. */
  const lockstep_span* memory; /* counts are bytes */
  size_t spans;
  /* 1: this rank has a state, of `committed` steps. */
  int32_t has_state;
  int32_t reserved; /* 0 */
  int64_t committed;
  /* What belongs to the state besides its memory, at most 64 MiB. */
  const void* small_part;
  size_t small_bytes;
  /* Of `memory`, which has not changed since; NULL: lockstep_group_level
   * computes it. Without a state it is not used. */
  const lockstep_digest* digest;
} lockstep_level;

typedef struct lockstep_leveled {
  size_t size;
  /* The steps that all ranks have now. */
  int64_t committed;
  /* Bytes that each receiver got; 0: no rank received. */
  int64_t bytes;
  int64_t time_ns;
  /* 1: this rank received the memory. After an error: its memory has changed
   * and is no state any more. */
  int32_t received;
  /* The first rank that sent. */
  int32_t source;
  size_t small_bytes;
} lockstep_leveled;

/* All ranks of a group that runs nothing else give the state of the most
 * advanced ranks to the others. The source's small part is read by
 * lockstep_group_small_part. FAILED_PRECONDITION: no rank has a state (reason
 * NO_STATE), or ranks with equal steps differ (reason DIVERGED). After an error
 * the memory of a rank that was to receive is undefined. */
LOCKSTEP_API int32_t lockstep_group_level(lockstep_group* group,
                                          const lockstep_level* level,
                                          lockstep_leveled* leveled,
                                          lockstep_error* error);
/* Copies the small part of the last lockstep_group_level: lockstep_leveled has
 * its size. */
LOCKSTEP_API int32_t lockstep_group_small_part(lockstep_group* group,
                                               void* bytes, size_t capacity,
                                               lockstep_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LOCKSTEP_LOCKSTEP_H_ */
