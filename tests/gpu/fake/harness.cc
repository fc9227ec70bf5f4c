// Runs a collective for every rank of a group, each on a thread of its own with a fake device,
// behind C names for ctypes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ffi/gpu/execution.h"
#include "ffi/gpu/mpi_communicator.h"
#include "ffi/gpu/nccl_communicator.h"
#include "ffi/gpu/nccl_library.h"
#include "ffi/gpu/plan.h"
#include "tests/gpu/fake/deadlock.h"
#include "tests/gpu/fake/device.h"
#include "tests/gpu/fake/faults.h"
#include "tests/gpu/fake/knobs.h"
#include "tests/gpu/fake/mpi.h"

namespace {

using namespace pccl::gpu;
using pccl::Schedule;

enum Transport : int32_t { kNccl = 0, kMpi = 1, kAwareMpi = 2 };

}  // namespace

extern "C" {

struct FakeCall {
  const int64_t* program;
  size_t program_size;
  const int64_t* other_program;  // what the last rank runs instead, or null
  int32_t collective, op, dtype;
  const int64_t* places;
  int64_t rows;
  size_t item_bytes, in_bytes, out_bytes;
  int32_t inside, between;  // transports
  int32_t reversed;         // ranks of NCCL communicators are numbered the other way round
  int32_t missing;          // a rank that does not come, or -1
  int32_t capturing;
  int32_t devices_in_process;
  int32_t again;       // whether a rank that fails tries once more
  int32_t other_call;  // whether the last rank believes to run another collective
  double timeout_s;
};

}  // extern "C"

namespace {

struct Group {
  NcclLibrary::UniqueId id;
  std::vector<int64_t> members;  // ranks of the schedule
};

struct Test {
  const FakeCall* call;
  Schedule schedule, other;
  Plan plan;
  Shape shape;
  std::vector<Group> nodes, aligned;
  fake::MpiNetwork network;
  std::vector<std::unique_ptr<fake::Mpi>> processes;
  pccl::MpiLibrary* real_mpi = nullptr;  // where ranks are processes
  int64_t comm = 0;
};

Shape ShapeOf(const FakeCall& call) {
  return {static_cast<pccl::Collective>(call.collective),
          call.places,
          call.rows,
          call.in_bytes,
          call.out_bytes,
          call.item_bytes};
}

std::unique_ptr<Communicator> Connect(Test* test, Transport transport, const Group& group,
                                      int64_t me) {
  const auto at = std::find(group.members.begin(), group.members.end(), me);
  const int64_t rank = at - group.members.begin();
  const auto size = static_cast<int>(group.members.size());
  if (transport == kNccl) {
    std::string why;
    const NcclLibrary* library = NcclLibrary::Find("", &why);
    if (library == nullptr) throw std::runtime_error(why);
    std::vector<int> order(group.members.size());
    std::iota(order.begin(), order.end(), 0);
    if (test->call->reversed != 0) std::reverse(order.begin(), order.end());
    const int there = order[static_cast<size_t>(rank)];
    return std::make_unique<NcclCommunicator>(*library, library->Init(size, group.id, there),
                                              NcclCommunicator::Owner::kUs, rank, order);
  }
  const int64_t each = test->call->devices_in_process;
  MpiSettings settings;
  settings.mpi = test->real_mpi;
  settings.comm = test->comm;
  if (test->real_mpi == nullptr) {
    settings.mpi = test->processes[static_cast<size_t>(me / each)].get();
  }
  settings.devices = each;
  settings.gpu_aware = transport == kAwareMpi;
  settings.timeout_s = test->call->timeout_s;
  settings.title = "fake collective";
  std::vector<MpiPeer> peers;
  for (const int64_t member : group.members) {
    peers.push_back({static_cast<int>(member / each), member % each});
  }
  return std::make_unique<MpiCommunicator>(settings, rank, peers);
}

void RunRank(Test* test, int64_t rank, const void* in, void* out, void* scratch, int repeats) {
  const FakeCall& call = *test->call;
  const bool last = rank == test->schedule.ranks() - 1;
  const Schedule& schedule = last && call.other_program != nullptr ? test->other : test->schedule;
  fake::Reset(static_cast<int>(rank), call.capturing != 0);
  std::unique_ptr<Communicator> node, aligned;
  const auto index = static_cast<size_t>(rank % schedule.local);
  if (schedule.local > 1) {
    const auto at = static_cast<size_t>(rank / schedule.local);
    node = Connect(test, static_cast<Transport>(call.inside), test->nodes[at], rank);
  }
  if (schedule.nodes > 1) {
    aligned = Connect(test, static_cast<Transport>(call.between), test->aligned[index], rank);
  }
  void* stream = fake::NewStream();
  Execution::Setup setup;
  setup.schedule = &schedule;
  setup.plan = &test->plan;
  setup.shape = test->shape;
  setup.arithmetic = {static_cast<pccl::DType>(call.dtype), static_cast<pccl::Op>(call.op)};
  setup.rank = rank;
  setup.node = node.get();
  setup.aligned = aligned.get();
  setup.in = static_cast<const char*>(in);
  setup.out = static_cast<char*>(out);
  setup.scratch = static_cast<char*>(scratch);
  setup.call = last && call.other_call != 0 ? 1 : 0;
  try {
    for (int i = 0; i < repeats; ++i) Execution(setup).Enqueue(stream);
  } catch (const std::exception& e) {
    if (call.again == 0) throw;
    Execution(setup).Enqueue(stream);
  }
  fake::Drain(stream);
}

void MakeGroups(Test* test) {
  std::string why;
  const NcclLibrary* library = NcclLibrary::Find("", &why);
  const auto id = [&] { return library == nullptr ? NcclLibrary::UniqueId{} : library->NewId(); };
  const Schedule& s = test->schedule;
  for (int64_t node = 0; node < s.nodes; ++node) {
    test->nodes.push_back({id(), {}});
    for (int64_t i = 0; i < s.local; ++i) test->nodes.back().members.push_back(node * s.local + i);
  }
  for (int64_t i = 0; i < s.local; ++i) {
    test->aligned.push_back({id(), {}});
    for (int64_t m = 0; m < s.nodes; ++m) test->aligned.back().members.push_back(m * s.local + i);
  }
  for (int64_t rank = 0; rank < s.ranks(); ++rank) {
    test->processes.push_back(std::make_unique<fake::Mpi>(&test->network, static_cast<int>(rank)));
  }
}

std::string Prepare(const FakeCall& call, Test* test) {
  test->call = &call;
  test->shape = ShapeOf(call);
  std::string error = Schedule::Decode(call.program, call.program_size, &test->schedule);
  if (error.empty() && call.other_program != nullptr) {
    error = Schedule::Decode(call.other_program, call.program_size, &test->other);
  }
  if (error.empty()) error = Plan::Make(test->schedule, test->shape, &test->plan);
  return error;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void fake_set(const char* name, int64_t value) { fake::Knob(name) = value; }
int64_t fake_get(const char* name) { return fake::Knob(name); }

// For calls of the kernels alone.
void* fake_stream() { return fake::NewStream(); }
void fake_drain(void* stream) { fake::Drain(stream); }

// Whether a message that is received over MPI waits for what the caller has enqueued before, which
// reads the memory it is received to. Rank 1 only receives.
int fake_receive_follows_reads() {
  fake::MpiNetwork network;
  std::vector<char> sent(size_t{6} << 20, 1), memory(sent.size(), 2);  // more than there are slots
  char read = 0;
  const auto run = [&](int64_t rank) {
    fake::Mpi mpi(&network, static_cast<int>(rank));
    MpiSettings settings;
    settings.mpi = &mpi;
    settings.title = "exchange";
    MpiCommunicator communicator(settings, rank, {{0, 0}, {1, 0}});
    void* stream = fake::NewStream();
    Transfer message;
    message.peer = 1 - rank;
    message.data = rank == 0 ? sent.data() : memory.data();
    message.nbytes = sent.size();
    if (rank == 0) return communicator.Exchange({message}, {}, stream);
    CopyAsync(&read, memory.data(), 1, stream);
    communicator.Exchange({}, {message}, stream);
    fake::Drain(stream);
  };
  std::thread other([&] { run(0); });
  run(1);
  other.join();
  return memory == sent && read == 2 ? 1 : 0;
}

// Bytes of scratch: all, and where nothing is exchanged by messages in collectives.
int fake_scratch(const FakeCall* call, size_t* all, size_t* native) {
  Test test;
  if (!Prepare(*call, &test).empty()) return 1;
  *all = test.plan.scratch.nbytes();
  *native = test.plan.scratch.exchange.begin;
  return 0;
}

// For one rank of several processes, whose MPI ranks are those of the schedule. Returns an error
// text, valid until the next call, or "".
const char* fake_run_over_mpi(const FakeCall* call, const char* mpi4py_file, int any_source,
                              uint64_t comm, int64_t rank, const void* in, void* out,
                              void* scratch) {
  static std::string error;
  Test test;
  try {
    error = Prepare(*call, &test);
    if (!error.empty()) return error.c_str();
    const auto mpi = pccl::MpiLibrary::Bind(mpi4py_file, any_source);
    MakeGroups(&test);
    test.real_mpi = mpi.get();
    test.comm = static_cast<int64_t>(comm);
    RunRank(&test, rank, in, out, scratch, 1);
    error = fake::Failure();
  } catch (const std::exception& e) {
    error = e.what();
  }
  return error.c_str();
}

// The texts of all ranks that fail, one a line, go to `errors`. Returns how many fail.
int fake_run(const FakeCall* call, const void* const* in, void* const* out, void* const* scratch,
             int repeats, char* errors, size_t errors_size) {
  Test test;
  const std::string error = Prepare(*call, &test);
  if (!error.empty()) return fake::Report({error}, errors, errors_size);
  MakeGroups(&test);
  const auto n = static_cast<size_t>(test.schedule.ranks());
  std::vector<std::string> faults(n);
  std::vector<std::thread> threads;
  fake::TheDeadlock().Begin(static_cast<int>(n));
  for (size_t rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        if (static_cast<int>(rank) != call->missing) {
          RunRank(&test, static_cast<int64_t>(rank), in[rank], out[rank], scratch[rank], repeats);
          faults[rank] = fake::Failure();
        }
      } catch (const std::exception& e) {
        faults[rank] = e.what();
      }
      std::lock_guard<std::mutex> lock(fake::TheDeadlock().mutex);
      fake::TheDeadlock().Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return fake::Report(faults, errors, errors_size);
}

}  // extern "C"
#pragma GCC visibility pop
