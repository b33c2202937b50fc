/* What XLA calls: the handlers of its FFI, which all kernels share.

`scripts/data/refresh_driver.py` makes driver.ll of this file, which LLVM compiles at the first use.

A kernel is a `body` function and an entry, a record in a list. veenv_instantiate runs when an
executable is made: it finds the entry by the key in the call's attributes, counts itself as a user
and leaves the entry as the call's state; when the executable goes, XLA deletes the state and the
entry has a user less. veenv_execute splits the batch into chunks for the runtime's thread pool.

A kernel reads and writes arrays where they are, vectors of points at a time. Staged are arguments
that are not batched, repeated for one vector; the points after the last whole vector; and outputs
where many of them would collide in the cache, or that the code writes by values
(`veenv.kernel.cpu.outputs`): they are written tile by tile. */

#include <stdint.h>

#include "xla/ffi/api/c_api.h"

typedef int64_t word;
typedef char *bytes;

void *malloc(size_t);
void *aligned_alloc(size_t, size_t);
void free(void *);
void *memcpy(void *, const void *, size_t);
int sched_yield(void);
int madvise(void *, size_t, int);
void *stack_save(void) __asm__("llvm.stacksave.p0");
void stack_restore(void *) __asm__("llvm.stackrestore.p0");

enum { LINE = 64 }; /* bytes of a line of the cache */

/* ---- Records, which veenv.kernel.cpu.records fills ---- */

struct input { /* what a body knows of an input leaf */
  bytes data;
  word step; /* bytes from a vector of points to the next one */
};

struct leaf {
  word bytes, rank;           /* of a point */
  word offset, in_place;      /* in the memory; whether it is not staged there */
  word staged;                /* bytes of a point in staging */
  word count;                 /* of what is staged by values: the number of entries, else 0, */
  const word *sources;        /* the numbers of their values, */
  const word *places;         /* their bytes in a point, */
  const void *constants;      /* the point with what is between them, or null, */
  word width;                 /* bytes of an entry, */
  void (*transpose)(bytes source, bytes target, word entries, word stride, const word *numbers);
};

struct entry {
  word key, users;
  struct entry *next;
  void (*body)(struct input *ins, bytes *outs, word points); /* a last vector may be a part */
  word num_in, num_out;
  word tile, lanes;  /* vectors of a tile, points of a vector */
  word staging;      /* bytes of it */
  word memory;       /* bytes of all: staging, tables of inputs and outputs, the body's stack */
  const struct leaf *ins, *outs;
  word chunk;        /* the least points of one */
  word own_stack;    /* whether the body's stack is in the memory, as a thread may have little */
};

/* ---- A part of the batch ---- */

static word least(word x, word y) { return x < y ? x : y; }

/* Copies points, and the last one again up to a number of points. */
static void stage(bytes buffer, const char *data, word size, word count, word upto) {
  memcpy(buffer, data, count * size);
  for (word point = count; point < upto; point++)
    memcpy(buffer + point * size, data + (count - 1) * size, size);
}

#define SCATTER(kind)              \
  for (word k = 0; k < count; k++) \
    *(kind *)(row + places[k]) = ((kind *)vectors)[sources[k] * lanes + point]

/* Writes a few points, or a few entries. */
static void scatter(const struct leaf *leaf, bytes rows, bytes vectors, word points, word lanes) {
  const word *places = leaf->places, *sources = leaf->sources, count = leaf->count;
  for (word point = 0; point < points; point++) {
    bytes row = rows + point * leaf->bytes;
    if (leaf->constants) memcpy(row, leaf->constants, leaf->bytes);
    if (leaf->width == 1) SCATTER(int8_t);
    if (leaf->width == 2) SCATTER(int16_t);
    if (leaf->width == 4) SCATTER(int32_t);
    if (leaf->width == 8) SCATTER(int64_t);
  }
}

/* Writes points that are staged by values. */
static void spread(const struct leaf *leaf, bytes target, bytes source, word count, word lanes) {
  for (word first = 0; first < count; first += lanes) {
    bytes rows = target + first * leaf->bytes, vectors = source + first * leaf->staged;
    word points = least(lanes, count - first);
    if (!leaf->constants && leaf->count >= lanes && points == lanes)
      leaf->transpose(vectors, rows, leaf->count, leaf->bytes, leaf->sources);
    else
      scatter(leaf, rows, vectors, points, lanes);
  }
}

/* Copies staged outputs to where they belong: everything, or what is never in place. */
static void copy_out(struct entry *entry, bytes *outs, bytes memory, word first, word count,
                     int everything) {
  for (word k = 0; k < entry->num_out; k++) {
    const struct leaf *leaf = &entry->outs[k];
    bytes target = outs[k] + first * leaf->bytes, source = memory + leaf->offset;
    if (leaf->in_place && !everything) continue;
    if (leaf->count)
      spread(leaf, target, source, count, entry->lanes);
    else
      memcpy(target, source, count * leaf->bytes);
  }
}

/* The table of the inputs: those that all points share are staged once, and do not move. */
static void shared_inputs(struct entry *entry, bytes *ins, word *batched, word start, bytes memory,
                          struct input *table) {
  for (word k = 0; k < entry->num_in; k++) {
    const struct leaf *leaf = &entry->ins[k];
    if (batched[k]) {
      table[k] = (struct input){ins[k] + start * leaf->bytes, entry->lanes * leaf->bytes};
    } else {
      table[k] = (struct input){memory + leaf->offset, 0};
      stage(table[k].data, ins[k], leaf->bytes, 1, entry->lanes);
    }
  }
}

/* Calls a body with its stack below an address. */
__attribute__((noinline)) static void on_stack(bytes top, struct entry *entry, struct input *table,
                                               bytes *targets, word points) {
  /* of a size that is not known, so that this function addresses it by a frame pointer */
  void *volatile *kept = __builtin_alloca(sizeof(void *) * least(points, 1));
  *kept = stack_save();
  stack_restore(top);
  entry->body(table, targets, points);
  stack_restore(*kept);
}

static void compute(struct entry *entry, bytes memory, struct input *table, bytes *targets,
                    word points) {
  if (entry->own_stack)
    on_stack(memory + entry->memory, entry, table, targets, points);
  else
    entry->body(table, targets, points);
}

/* Computes whole vectors, tile by tile. */
static void whole(struct entry *entry, bytes *outs, word start, word vectors, bytes memory,
                  struct input *table, bytes *targets) {
  for (word done = 0; done < vectors; done += entry->tile) {
    word now = least(entry->tile, vectors - done), first = start + done * entry->lanes;
    for (word k = 0; k < entry->num_out; k++) {
      const struct leaf *leaf = &entry->outs[k];
      targets[k] = leaf->in_place ? outs[k] + first * leaf->bytes : memory + leaf->offset;
    }
    compute(entry, memory, table, targets, now * entry->lanes);
    copy_out(entry, outs, memory, first, now * entry->lanes, 0);
    for (word k = 0; k < entry->num_in; k++) table[k].data += now * table[k].step;
  }
}

/* Computes less than a vector of points. */
static void rest(struct entry *entry, bytes *outs, word start, word count, bytes memory,
                 struct input *table, bytes *targets) {
  for (word k = 0; k < entry->num_in; k++)
    if (table[k].step) {
      bytes staged = memory + entry->ins[k].offset;
      stage(staged, table[k].data, entry->ins[k].bytes, count, entry->lanes);
      table[k].data = staged;
    }
  for (word k = 0; k < entry->num_out; k++) targets[k] = memory + entry->outs[k].offset;
  compute(entry, memory, table, targets, count);
  copy_out(entry, outs, memory, start, count, 1);
}

/* Computes the points from start to stop. */
static void run(struct entry *entry, bytes *ins, word *batched, bytes *outs, word start, word stop,
                bytes memory) {
  struct input *table = (struct input *)(memory + entry->staging);
  bytes *targets = (bytes *)(table + entry->num_in);
  word vectors = (stop - start) / entry->lanes, last = start + vectors * entry->lanes;
  shared_inputs(entry, ins, batched, start, memory, table);
  if (vectors) whole(entry, outs, start, vectors, memory, table, targets);
  if (last < stop) rest(entry, outs, last, stop - last, memory, table, targets);
}

/* ---- The batch, on the threads of XLA's pool ---- */

#define ASK(frame, name, ...)                                  \
  (frame)->api->XLA_FFI_##name(&(XLA_FFI_##name##_Args){       \
      XLA_FFI_##name##_Args_STRUCT_SIZE, NULL, __VA_ARGS__})

struct shared {         /* what the tasks of a call share */
  word taken, done;     /* chunks */
  word users, helpers;
  word chunks, chunk, batch, shares; /* number of chunks, points of one, points of all */
  struct entry *entry;
  bytes *ins, *outs;
  word *batched;        /* of each input: whether it has the batch's axes */
  word *asked;          /* of each share: how many chunks were asked for */
};

static word add(word *place, word number) {
  return __atomic_fetch_add(place, number, __ATOMIC_ACQ_REL);
}

static int is_fine(XLA_FFI_CallFrame *frame, XLA_FFI_Error *error) {
  if (error) ASK(frame, Error_Destroy, error);
  return !error;
}

/* One user less of a shared record; the last one frees it. */
static void release(struct shared *shared) {
  if (add(&shared->users, -1) == 1) free(shared);
}

/* Takes chunks until none is left, first of its own share. Frees the memory. */
static void work(struct shared *shared, word own, bytes memory) {
  word shares = shared->shares, chunks = shared->chunks;
  for (word turn = own; turn < own + shares; turn++) {
    word share = turn % shares, number;
    word begin = share * chunks / shares, end = (share + 1) * chunks / shares;
    while ((number = begin + add(&shared->asked[share], 1)) < end) {
      word first = number * shared->chunk, last = least(first + shared->chunk, shared->batch);
      add(&shared->taken, 1);
      run(shared->entry, shared->ins, shared->batched, shared->outs, first, last, memory);
      add(&shared->done, 1);
    }
  }
  free(memory);
}

/* What the thread pool runs. One that starts late finds no chunk and touches no code. */
static void task(void *data) {
  struct shared *shared = data;
  if (__atomic_load_n(&shared->taken, __ATOMIC_ACQUIRE) < shared->chunks) {
    bytes memory = aligned_alloc(LINE, shared->entry->memory);
    if (memory) work(shared, add(&shared->helpers, 1) + 1, memory); /* the caller has its own */
  }
  release(shared);
}

/* Works on the batch, and tasks of the pool help. The caller takes chunks itself and in the end
   waits only for chunks that running tasks have taken, never for a task that has not started. */
static void parallel(XLA_FFI_CallFrame *frame, struct shared *shared, bytes memory) {
  for (word k = 1; k < shared->shares; k++) {
    add(&shared->users, 1);
    if (!is_fine(frame, ASK(frame, ThreadPool_Schedule, frame->ctx, task, shared)))
      release(shared);
  }
  work(shared, 0, memory);
  while (__atomic_load_n(&shared->done, __ATOMIC_ACQUIRE) < shared->chunks) sched_yield();
  release(shared);
}

/* ---- The list of entries, with a lock that is held for a few instructions and by nobody who runs
   Python ---- */

word veenv_lock;
static struct entry *entries;

static void lock(void) {
  while (__atomic_exchange_n(&veenv_lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}

static void unlock(void) { __atomic_store_n(&veenv_lock, 0, __ATOMIC_RELEASE); }

/* Where the address of an entry is in the list, or would be. */
static struct entry **find(word key) {
  struct entry **place = &entries;
  while (*place && (*place)->key != key) place = &(*place)->next;
  return place;
}

/* Puts an entry in the list if none is there with its key. */
void veenv_insert(struct entry *entry) {
  lock();
  struct entry **place = find(entry->key);
  if (!*place) {
    entry->next = NULL;
    *place = entry;
  }
  unlock();
}

/* Takes an entry without users from the list; says whether it is out. */
int veenv_remove(struct entry *entry) {
  lock();
  int unused = __atomic_load_n(&entry->users, __ATOMIC_ACQUIRE) == 0;
  struct entry **place = find(entry->key);
  if (unused && *place == entry) *place = entry->next;
  unlock();
  return unused;
}

/* ---- Handlers ---- */

word veenv_oldest, veenv_newest; /* versions of the API in which kernels are tested */
word veenv_version = -1;         /* the one that was asked for; a major number is in its upper half */
word veenv_advise;               /* whether the system is told how to treat memory */
XLA_FFI_TypeId veenv_type_id;

/* An executable is gone: its entry has one user less. */
static void delete_state(void *entry) { add(&((struct entry *)entry)->users, -1); }

XLA_FFI_TypeInfo veenv_type_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, NULL, delete_state};

/* Answers the query for the API version; says whether it was one. */
static int is_query(XLA_FFI_CallFrame *frame, XLA_FFI_TypeId state) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata)
    return 0;
  XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
  int major = frame->api->api_version.major_version, minor = frame->api->api_version.minor_version;
  veenv_version = (word)major << 32 | minor;
  int known = veenv_oldest <= veenv_version && veenv_version <= veenv_newest;
  metadata->api_version.major_version = major;
  metadata->api_version.minor_version = known ? minor : -1; /* which XLA refuses */
  metadata->traits = 0;
  if (state.type_id) metadata->state_type_id = state;
  return 1;
}

static XLA_FFI_Error *no_memory(XLA_FFI_CallFrame *frame) {
  return ASK(frame, Error_Create, "no memory is left for the buffers of a fused veenv kernel",
             XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
}

XLA_FFI_Error *veenv_instantiate(XLA_FFI_CallFrame *frame) {
  if (is_query(frame, veenv_type_id)) return NULL;
  word key = *(word *)((XLA_FFI_Scalar *)frame->attrs.attrs[0])->value;
  lock();
  struct entry *entry = *find(key);
  if (entry) add(&entry->users, 1);
  unlock();
  if (!entry)
    return ASK(frame, Error_Create,
               "the code of a fused veenv kernel is not in this process: it was compiled in another "
               "one, or its program was lowered long ago; trace and lower the function again "
               "(jax.clear_caches())",
               XLA_FFI_Error_Code_NOT_FOUND);
  return ASK(frame, State_Set, frame->ctx, XLA_FFI_ExecutionStage_INSTANTIATE, &veenv_type_id,
             entry);
}

/* The number of points, which the first result has in front of its own axes. */
static word points(XLA_FFI_CallFrame *frame, struct entry *entry) {
  XLA_FFI_Buffer *result = frame->rets.rets[0];
  word batch = 1;
  for (word k = 0; k < result->rank - entry->outs[0].rank; k++) batch *= result->dims[k];
  return batch;
}

/* A result that is a mapping of its own gets large pages. */
static void advise(bytes data, word size) {
  enum { OWN_MAPPING = 32 << 20, LARGE_PAGE = 2 << 20, MADV_HUGEPAGE = 14 };
  word first = ((word)data + LARGE_PAGE - 1) & -LARGE_PAGE, end = ((word)data + size) & -LARGE_PAGE;
  if (size >= OWN_MAPPING) madvise((void *)first, end - first, MADV_HUGEPAGE);
}

/* A record of the call: the buffers, and what the chunks need; null where no memory is left. */
static struct shared *call(XLA_FFI_CallFrame *frame, struct entry *entry, word batch, word chunk,
                           word shares) {
  word num_in = entry->num_in, num_out = entry->num_out;
  struct shared *shared = malloc(sizeof *shared + 8 * (2 * num_in + num_out + shares));
  if (!shared) return NULL;
  bytes *ins = (bytes *)(shared + 1), *outs = ins + num_in;
  word *batched = (word *)(outs + num_out), *asked = batched + num_in;
  *shared = (struct shared){.users = 1, .chunks = (batch + chunk - 1) / chunk, .chunk = chunk,
                            .batch = batch, .shares = shares, .entry = entry, .ins = ins,
                            .outs = outs, .batched = batched, .asked = asked};
  for (word k = 0; k < num_in; k++) {
    XLA_FFI_Buffer *buffer = frame->args.args[k];
    ins[k] = buffer->data;
    batched[k] = buffer->rank > entry->ins[k].rank;
  }
  for (word k = 0; k < num_out; k++) {
    outs[k] = ((XLA_FFI_Buffer *)frame->rets.rets[k])->data;
    if (veenv_advise) advise(outs[k], batch * entry->outs[k].bytes);
  }
  for (word k = 0; k < shares; k++) asked[k] = 0;
  return shared;
}

XLA_FFI_Error *veenv_execute(XLA_FFI_CallFrame *frame) {
  if (is_query(frame, (XLA_FFI_TypeId){0})) return NULL;
  XLA_FFI_State_Get_Args state = {XLA_FFI_State_Get_Args_STRUCT_SIZE, NULL, frame->ctx,
                                  XLA_FFI_ExecutionStage_INSTANTIATE, &veenv_type_id};
  XLA_FFI_Error *error = frame->api->XLA_FFI_State_Get(&state);
  if (error) return error;
  struct entry *entry = state.state;
  word batch = points(frame, entry), lanes = entry->lanes, threads = 1, chunk = batch;
  if (!batch) return NULL;
  if (batch >= 2 * entry->chunk &&
      !is_fine(frame, ASK(frame, ThreadPool_NumThreads, frame->ctx, &threads)))
    threads = 1;
  if (threads > 1) {
    chunk = batch / (4 * threads);
    if (chunk < entry->chunk) chunk = entry->chunk;
  }
  chunk = (chunk + lanes - 1) / lanes * lanes;
  word shares = threads < 1 ? 1 : least(threads, (batch + chunk - 1) / chunk);
  struct shared *shared = call(frame, entry, batch, chunk, shares);
  if (!shared) return no_memory(frame);
  bytes memory = aligned_alloc(LINE, entry->memory);
  if (!memory) {
    free(shared);
    return no_memory(frame);
  }
  parallel(frame, shared, memory);
  return NULL;
}
