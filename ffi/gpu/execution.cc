#include "ffi/gpu/execution.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/gpu/kernels.h"

namespace pccl::gpu {
namespace {

// From so many bytes a chunk on, one collective for every node straight into place should beat one
// for all and a pass over the result. To be measured.
constexpr size_t kWithoutShuffle = size_t{256} << 10;

// A run of chunks that lie one after the other in all of several arrays.
struct Run {
  size_t first = 0, count = 0;
};

// Cuts chunks 0, 1, ... count - 1 where `joined(i)` says that the i-th does not continue the one
// before.
template <class Joined>
std::vector<Run> Runs(size_t count, Joined&& joined) {
  std::vector<Run> runs;
  for (size_t i = 0; i < count; ++i) {
    if (i == 0 || !joined(i)) runs.push_back({i, 0});
    ++runs.back().count;
  }
  return runs;
}

}  // namespace

Execution::Execution(const Setup& setup)
    : s_(setup),
      schedule_(*setup.schedule),
      node_(setup.rank / setup.schedule->local),
      index_(setup.rank % setup.schedule->local),
      chunk_(setup.plan->chunk_bytes) {}

void Execution::Enqueue(Stream stream) {
  stream_ = stream;
  if (s_.node != nullptr) s_.node->Serve(s_.call);
  if (s_.aligned != nullptr) s_.aligned->Serve(s_.call);
  Start();
  for (const Phase& phase : schedule_.phases) {
    if (phase.vendor) throw std::runtime_error("the MPI library's collectives do not run on GPUs");
    if (phase.intra) {
      RunIntra(phase.collective);
    } else if (phase.inter) {
      RunInter(phase.collective);
    } else {
      for (int64_t i = 0; i < phase.times; ++i) RunRound(phase, phase.first_round + i);
    }
  }
  Finish();
}

void Execution::Start() {
  const Plan& plan = *s_.plan;
  const bool gathers = s_.shape.collective == Collective::kAllGather;
  const bool scatters = s_.shape.collective == Collective::kReduceScatter;
  const auto offset = [&](int64_t chunk) { return static_cast<size_t>(chunk) * chunk_; };
  char* regular = At(plan.scratch.packed);
  in_ = plan.regular || gathers ? s_.in : regular;
  out_ = plan.regular || scatters ? s_.out : regular;
  if (in_ == regular && !plan.regular) {
    Pack(schedule_, s_.shape, plan, s_.in, regular, stream_);
  }
  own_ = At(plan.scratch.own);
  if (!schedule_.split || (schedule_.local == 1 && !scatters)) own_ = out_;
  if (schedule_.split && schedule_.nodes == 1) own_ = scatters ? out_ : out_ + offset(index_);
  char* in = const_cast<char*>(in_);  // only read
  at_.assign(static_cast<size_t>(schedule_.chunks()), gathers ? nullptr : in);
  if (gathers) at_[static_cast<size_t>(node_)] = in;
  for (int64_t m = 0; schedule_.split && !gathers && m < schedule_.nodes; ++m) {
    at_[static_cast<size_t>(m)] += offset(m * schedule_.local + index_);
  }
}

char* Execution::Target(int64_t m) const {
  if (s_.shape.collective == Collective::kReduceScatter && m == node_) return out_;
  return own_ + static_cast<size_t>(m) * chunk_;
}

char* Execution::OwnArray() {
  bool joined = true;
  for (size_t m = 1; m < at_.size(); ++m) joined &= at_[m] == at_[0] + m * chunk_;
  if (joined) return at_[0];
  for (size_t m = 0; m < at_.size(); ++m) {
    char* place = own_ + m * chunk_;
    if (at_[m] != place) CopyAsync(place, at_[m], chunk_, stream_);
    at_[m] = place;
  }
  return own_;
}

void Execution::Collect(Communicator* communicator, Collective collective,
                        const std::vector<Job>& jobs) {
  if (communicator->Collects(collective, s_.arithmetic)) {
    return communicator->Collect(collective, jobs, s_.arithmetic, stream_);
  }
  for (const Job& job : jobs) {
    CollectByMessages(communicator, collective, job, s_.arithmetic, At(s_.plan->scratch.exchange),
                      stream_);
  }
}

bool Execution::WithoutShuffle(Collective collective) const {
  if (schedule_.nodes == 1) return true;
  return chunk_ >= kWithoutShuffle && s_.node->Collects(collective, s_.arithmetic);
}

void Execution::Permute(char* dst, const char* src, int64_t rows, int64_t cols) {
  const int code = pccl_gpu_permute(dst, src, rows, cols, chunk_, stream_);
  if (code == PCCL_GPU_OK) return;
  throw std::runtime_error("GPU kernel: permutation failed with code " + std::to_string(code));
}

void Execution::RunIntra(Collective collective) {
  if (collective == Collective::kAllGather) return GatherInNode();
  if (collective == Collective::kReduceScatter) return ScatterInNode();
  const size_t whole = schedule_.split ? chunk_ * static_cast<size_t>(schedule_.ranks()) : chunk_;
  const char* in = schedule_.split ? in_ : at_[0];
  Collect(s_.node, collective, {{in, out_, whole}});
  for (int64_t m = 0; m < static_cast<int64_t>(at_.size()); ++m) {
    at_[static_cast<size_t>(m)] = out_;
    if (schedule_.split) {
      at_[static_cast<size_t>(m)] += static_cast<size_t>(m * schedule_.local + index_) * chunk_;
    }
  }
}

void Execution::GatherInNode() {
  const auto local = static_cast<size_t>(schedule_.local);
  if (WithoutShuffle(Collective::kAllGather)) {
    std::vector<Job> jobs;
    for (size_t m = 0; m < at_.size(); ++m) {
      jobs.push_back({at_[m], out_ + m * local * chunk_, chunk_});
    }
    return Collect(s_.node, Collective::kAllGather, jobs);
  }
  char* gathered = At(s_.plan->scratch.node);
  Collect(s_.node, Collective::kAllGather, {{OwnArray(), gathered, at_.size() * chunk_}});
  Permute(out_, gathered, schedule_.local, schedule_.nodes);
}

void Execution::ScatterInNode() {
  const auto local = static_cast<size_t>(schedule_.local);
  if (WithoutShuffle(Collective::kReduceScatter)) {
    std::vector<Job> jobs;
    for (int64_t m = 0; m < schedule_.nodes; ++m) {
      jobs.push_back({in_ + static_cast<size_t>(m) * local * chunk_, Target(m), chunk_});
      at_[static_cast<size_t>(m)] = Target(m);
    }
    return Collect(s_.node, Collective::kReduceScatter, jobs);
  }
  char* permuted = At(s_.plan->scratch.node);
  Permute(permuted, in_, schedule_.nodes, schedule_.local);
  Collect(s_.node, Collective::kReduceScatter, {{permuted, own_, at_.size() * chunk_}});
  for (size_t m = 0; m < at_.size(); ++m) at_[m] = own_ + m * chunk_;
}

void Execution::RunInter(Collective collective) {
  const auto node = static_cast<size_t>(node_);
  if (collective == Collective::kAllGather) {
    Collect(s_.aligned, collective, {{at_[node], own_, chunk_}});
  } else if (collective == Collective::kReduceScatter) {
    Collect(s_.aligned, collective, {{OwnArray(), Target(node_), chunk_}});
    at_[node] = Target(node_);
    return;
  } else {
    Collect(s_.aligned, collective, {{OwnArray(), own_, at_.size() * chunk_}});
  }
  for (size_t m = 0; m < at_.size(); ++m) at_[m] = own_ + m * chunk_;
}

std::vector<int64_t> Execution::Chunks(const Phase& phase, int64_t sender, int64_t round) const {
  std::vector<int64_t> chunks;
  phase.ForChunks(sender, round, schedule_.chunks(), [&](int64_t m) { chunks.push_back(m); });
  return chunks;
}

Transfer Execution::Outgoing(const Phase& phase, int64_t to, int64_t round) {
  const std::vector<int64_t> chunks = Chunks(phase, node_, round);
  const auto at = [&](size_t i) { return at_[static_cast<size_t>(chunks[i])]; };
  const std::vector<Run> runs =
      Runs(chunks.size(), [&](size_t i) { return at(i) == at(i - 1) + chunk_; });
  Transfer message;
  message.peer = to;
  message.data = runs.size() == 1 ? at(0) : At(s_.plan->scratch.outgoing);
  message.nbytes = static_cast<size_t>(phase.count) * chunk_;
  for (size_t i = 0; runs.size() > 1 && i < runs.size(); ++i) {
    CopyAsync(message.data + runs[i].first * chunk_, at(runs[i].first), runs[i].count * chunk_,
              stream_);
  }
  return message;
}

void Execution::RunRound(const Phase& phase, int64_t round) {
  const int64_t to = phase.ReceiverFrom(node_, schedule_.nodes);
  const int64_t from = phase.SenderTo(node_, schedule_.nodes);
  std::vector<Transfer> sends, receives;
  if (to >= 0) sends.push_back(Outgoing(phase, to, round));
  std::vector<int64_t> chunks;
  std::vector<Part> parts;
  if (from >= 0) {
    chunks = Chunks(phase, from, round);
    Transfer message;
    message.peer = from;
    message.nbytes = static_cast<size_t>(phase.count) * chunk_;
    message.data = Incoming(phase, chunks);
    // In a combine both ends must fold in the same order to get the same bits.
    const bool theirs_first = phase.action == Action::kCombine && from < node_;
    parts = Parts(phase, chunks, message.data, theirs_first);
    for (const Part& part : parts) {
      if (!sends.empty() && Overlap(part, sends[0])) message.in_place = true;
    }
    if (!parts.empty()) {
      message.arrived = [&](size_t begin, size_t nbytes, Stream stream) {
        Take(parts, begin, nbytes, stream);
      };
    }
    receives.push_back(std::move(message));
  }
  if (!sends.empty() || !receives.empty()) s_.aligned->Exchange(sends, receives, stream_);
  for (const int64_t m : chunks) at_[static_cast<size_t>(m)] = Target(m);
}

char* Execution::Incoming(const Phase& phase, const std::vector<int64_t>& chunks) const {
  char* place = Target(chunks[0]);
  bool there = phase.action == Action::kCopy;
  for (size_t i = 0; i < chunks.size(); ++i) there &= Target(chunks[i]) == place + i * chunk_;
  return there ? place : At(s_.plan->scratch.incoming);
}

std::vector<Execution::Part> Execution::Parts(const Phase& phase,
                                              const std::vector<int64_t>& chunks,
                                              const char* message, bool theirs_first) const {
  const bool copies = phase.action == Action::kCopy;
  const auto at = [&](size_t i) { return at_[static_cast<size_t>(chunks[i])]; };
  const std::vector<Run> runs = Runs(chunks.size(), [&](size_t i) {
    return Target(chunks[i]) == Target(chunks[i - 1]) + chunk_ &&
           (copies || at(i) == at(i - 1) + chunk_);
  });
  std::vector<Part> parts;
  for (const Run& run : runs) {
    Part part;
    part.begin = run.first * chunk_;
    part.nbytes = run.count * chunk_;
    part.target = Target(chunks[run.first]);
    part.operands = {message + part.begin};
    if (copies && part.operands[0] == part.target) continue;
    if (!copies)
      part.operands.insert(part.operands.begin() + (theirs_first ? 1 : 0), at(run.first));
    parts.push_back(std::move(part));
  }
  return parts;
}

bool Execution::Overlap(const Part& part, const Transfer& sent) {
  const bool apart =
      sent.data + sent.nbytes <= part.target || part.target + part.nbytes <= sent.data;
  if (apart || part.target == sent.data + part.begin) return !apart;
  throw std::logic_error("the schedule overwrites a chunk while it is sent");
}

void Execution::Take(const std::vector<Part>& parts, size_t begin, size_t nbytes,
                     Stream stream) const {
  for (const Part& part : parts) {
    const size_t first = std::max(begin, part.begin);
    const size_t last = std::min(begin + nbytes, part.begin + part.nbytes);
    if (first >= last) continue;
    const size_t offset = first - part.begin;
    std::vector<const char*> operands;
    for (const char* operand : part.operands) operands.push_back(operand + offset);
    Reduce(s_.arithmetic, part.target + offset, operands, last - first, nullptr, stream);
  }
}

// What the collective promises this rank must be in its output.
void Execution::Finish() {
  const bool scatters = s_.shape.collective == Collective::kReduceScatter;
  const bool in_own = scatters || !schedule_.split || schedule_.local == 1;
  const int64_t first = scatters ? node_ : 0;
  const int64_t last = scatters ? node_ : static_cast<int64_t>(at_.size()) - 1;
  for (int64_t m = first; in_own && m <= last; ++m) {
    char* at = at_[static_cast<size_t>(m)];
    if (at != Target(m)) CopyAsync(Target(m), at, chunk_, stream_);
  }
  if (out_ != s_.out) Unpack(schedule_, s_.shape, *s_.plan, out_, s_.out, stream_);
}

}  // namespace pccl::gpu
