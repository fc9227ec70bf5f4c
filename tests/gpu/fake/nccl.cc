// NCCL among threads of a process, behind NCCL's own names: what the executor finds by dlopen.
// Strict where NCCL would hang or corrupt memory: a send is done when it was received, sizes must
// agree, and where everybody waits for everybody else that is an error. Operations run when their
// stream does.

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reduce.h"
#include "tests/gpu/fake/deadlock.h"
#include "tests/gpu/fake/device.h"
#include "tests/gpu/fake/knobs.h"

namespace {

using pccl::DType;

struct UniqueId {
  char internal[128];
};

struct Post {
  char* data;
  size_t nbytes;
  bool done = false;
};
using Line = std::deque<std::shared_ptr<Post>>;

enum class Kind { kAllGather, kReduceScatter, kAllReduce };

struct Part {
  const void* in;
  void* out;
};

// One collective of a communicator, as its members come to it.
struct Meeting {
  Kind kind;
  size_t count;
  int type, op;
  std::map<int, Part> parts;
  bool done = false;
};

struct World {
  int size;
  int members = 0;
  std::map<std::pair<int, int>, Line> sends, receives;  // by sender and receiver
  std::map<uint64_t, Meeting> meetings;
};

struct Comm {
  std::shared_ptr<World> world;
  int rank;
  uint64_t collectives = 0;
};

using Begin = std::function<std::function<bool()>()>;  // begins, and returns whether it is done

struct Operation {
  void* stream;
  Begin begin;
};

thread_local int depth = 0;
thread_local std::vector<Operation> group;

constexpr int kInvalidUsage = 5, kInProgress = 7;

std::map<std::string, std::shared_ptr<World>>& Worlds() {
  static auto* worlds = new std::map<std::string, std::shared_ptr<World>>;
  return *worlds;
}

size_t ItemSize(int type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[type];
}

DType TypeOf(int type) {
  constexpr DType kTypes[] = {DType::kInt8,    DType::kUint8,   DType::kInt32,   DType::kUint32,
                              DType::kInt64,   DType::kUint64,  DType::kFloat16, DType::kFloat32,
                              DType::kFloat64, DType::kBfloat16};
  return kTypes[type];
}

void Match(World* world, int sender, int receiver) {
  Line& sends = world->sends[{sender, receiver}];
  Line& receives = world->receives[{sender, receiver}];
  while (!sends.empty() && !receives.empty()) {
    Post &from = *sends.front(), &to = *receives.front();
    if (from.nbytes != to.nbytes) {
      return fake::Fail("fake NCCL: rank " + std::to_string(sender) + " sends " +
                        std::to_string(from.nbytes) + " bytes, rank " + std::to_string(receiver) +
                        " receives " + std::to_string(to.nbytes));
    }
    std::memcpy(to.data, from.data, from.nbytes);
    from.done = to.done = true;
    sends.pop_front();
    receives.pop_front();
    fake::TheDeadlock().Changed();
  }
}

// Everything is read before anything is written, as buffers may be the same.
void Complete(const World& world, Meeting* meeting) {
  const size_t n = static_cast<size_t>(world.size),
               nbytes = meeting->count * ItemSize(meeting->type);
  const bool scatters = meeting->kind == Kind::kReduceScatter;
  std::vector<char> result(nbytes * (meeting->kind == Kind::kAllReduce ? 1 : n));
  std::vector<const void*> inputs;
  for (const auto& [rank, part] : meeting->parts) {
    inputs.push_back(part.in);
    if (meeting->kind == Kind::kAllGather) {
      std::memcpy(result.data() + static_cast<size_t>(rank) * nbytes, part.in, nbytes);
    }
  }
  if (meeting->kind != Kind::kAllGather) {
    const auto reduce = pccl::FindReduce(TypeOf(meeting->type), static_cast<pccl::Op>(meeting->op));
    reduce(result.data(), inputs.data(), static_cast<int>(n),
           result.size() / ItemSize(meeting->type));
  }
  for (const auto& [rank, part] : meeting->parts) {
    const char* from = result.data() + (scatters ? static_cast<size_t>(rank) * nbytes : 0);
    std::memcpy(part.out, from, scatters ? nbytes : result.size());
  }
  meeting->done = true;
  fake::TheDeadlock().Changed();
}

void RunGroup(const std::vector<Begin>& begins) {
  fake::Deadlock& deadlock = fake::TheDeadlock();
  std::unique_lock<std::mutex> lock(deadlock.mutex);
  std::vector<std::function<bool()>> pending;
  for (const Begin& begin : begins) pending.push_back(begin());
  const bool ended = deadlock.Wait(&lock, [&] {
    if (fake::IsBroken()) return true;
    for (const auto& done : pending) {
      if (!done()) return false;
    }
    return true;
  });
  if (!ended) fake::Fail("fake NCCL: deadlock, every rank waits");
}

int Flush() {
  std::map<void*, std::vector<Begin>> by_stream;
  for (Operation& operation : group) {
    by_stream[operation.stream].push_back(std::move(operation.begin));
  }
  group.clear();
  for (auto& [stream, begins] : by_stream) {
    fake::Enqueue(stream, [begins = std::move(begins)] { RunGroup(begins); });
  }
  return 0;
}

int Add(void* stream, Begin begin) {
  group.push_back({stream, std::move(begin)});
  return depth == 0 ? Flush() : 0;
}

int PostMessage(Comm* comm, int sender, int receiver, char* data, size_t nbytes, bool sends,
                void* stream) {
  return Add(stream, [=] {
    auto post = std::make_shared<Post>(Post{data, nbytes});
    World& world = *comm->world;
    (sends ? world.sends : world.receives)[{sender, receiver}].push_back(post);
    Match(&world, sender, receiver);
    return [post] { return post->done || !fake::Failure().empty(); };
  });
}

int Meet(Comm* comm, Kind kind, const void* in, void* out, size_t count, int type, int op,
         void* stream) {
  const uint64_t number = comm->collectives++;
  return Add(stream, [=] {
    Meeting& meeting = comm->world->meetings[number];
    if (meeting.parts.empty()) {
      meeting.kind = kind, meeting.count = count, meeting.type = type, meeting.op = op;
    } else if (meeting.kind != kind || meeting.count != count || meeting.type != type ||
               meeting.op != op) {
      fake::Fail("fake NCCL: ranks disagree about a collective");
    }
    meeting.parts[comm->rank] = {in, out};
    if (static_cast<int>(meeting.parts.size()) == comm->world->size) {
      Complete(*comm->world, &meeting);
    }
    return [&meeting] { return meeting.done || !fake::Failure().empty(); };
  });
}

Comm* Cast(void* comm) { return static_cast<Comm*>(comm); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int ncclGetVersion(int* version) {
  *version = 22803;
  return 0;
}

const char* ncclGetErrorString(int code) { return code == 5 ? "invalid usage" : "fake error"; }
const char* ncclGetLastError(void*) { return ""; }

int ncclGetUniqueId(UniqueId* id) {
  static int64_t ids = 0;
  std::lock_guard<std::mutex> lock(fake::TheDeadlock().mutex);
  *id = {};
  const std::string name = "world " + std::to_string(ids++);
  std::memcpy(id->internal, name.data(), name.size());
  return 0;
}

int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  fake::Deadlock& deadlock = fake::TheDeadlock();
  std::unique_lock<std::mutex> lock(deadlock.mutex);
  std::shared_ptr<World>& world = Worlds()[id.internal];
  if (!world) world = std::make_shared<World>(World{size, 0, {}, {}, {}});
  if (world->size != size || rank < 0 || rank >= size) return 5;
  ++world->members;
  deadlock.Changed();
  *comm = new Comm{world, rank};
  const std::shared_ptr<World> mine = world;
  return deadlock.Wait(&lock, [&] { return mine->members == mine->size; }) ? 0 : 6;
}

int ncclCommUserRank(void* comm, int* rank) {
  *rank = Cast(comm)->rank;
  return 0;
}

int ncclCommCount(void* comm, int* size) {
  *size = Cast(comm)->world->size;
  return 0;
}

int ncclGroupStart() {
  ++depth;
  ++fake::Knob("nccl groups open");
  return 0;
}

int ncclGroupEnd() {
  --fake::Knob("nccl groups open");
  const int code = --depth == 0 ? Flush() : 0;
  return fake::Knob("nccl in progress") > 0 ? kInProgress : code;
}

int ncclCommGetAsyncError(void*, int* state) {
  const int64_t error = fake::Knob("nccl async error");
  *state = fake::TakeOne("nccl in progress") ? kInProgress : static_cast<int>(error);
  return 0;
}

int ncclSend(const void* data, size_t count, int type, int peer, void* comm, void* stream) {
  if (fake::TakeOne("nccl failing sends")) return kInvalidUsage;
  char* bytes = static_cast<char*>(const_cast<void*>(data));
  const int rank = Cast(comm)->rank;
  return PostMessage(Cast(comm), rank, peer, bytes, count * ItemSize(type), true, stream);
}

int ncclRecv(void* data, size_t count, int type, int peer, void* comm, void* stream) {
  char* bytes = static_cast<char*>(data);
  const int rank = Cast(comm)->rank;
  return PostMessage(Cast(comm), peer, rank, bytes, count * ItemSize(type), false, stream);
}

int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  return Meet(Cast(comm), Kind::kAllGather, in, out, count, type, 0, stream);
}

int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm,
                      void* stream) {
  return Meet(Cast(comm), Kind::kReduceScatter, in, out, count, type, op, stream);
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm,
                  void* stream) {
  return Meet(Cast(comm), Kind::kAllReduce, in, out, count, type, op, stream);
}

}  // extern "C"
#pragma GCC visibility pop
