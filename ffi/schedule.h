// A schedule as the executor reads it: the decoded form of pccl_jax/schedule/ir.py.
#ifndef PCCL_FFI_SCHEDULE_H_
#define PCCL_FFI_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pccl {

enum class Collective : int32_t { kAllGather = 0, kReduceScatter = 1, kAllReduce = 2 };
const char* Name(Collective collective);

enum class Action : int32_t { kCopy = 0, kReduce = 1, kCombine = 2 };

// (((rank & keep) ^ flip) + add) mod modulus, never negative.
struct Index {
  int64_t keep = -1;
  int64_t flip = 0;
  int64_t add = 0;
  int64_t At(int64_t rank, int64_t modulus) const;
};

// Either a collective among the ranks of a node (`intra`) or of each rank-aligned group (`inter`:
// on GPUs only), or `times` rounds of messages in the rank-aligned groups, or the whole collective
// done by the MPI library: then it is the only phase, and nobody is a sender. `first_round` numbers
// the rounds of a schedule through all phases.
struct Phase {
  bool intra = false;
  bool inter = false;
  bool vendor = false;
  Collective collective = Collective::kAllGather;  // of all but steps
  Index to, first;
  int64_t count = 0;
  Action action = Action::kCopy;
  int64_t times = 1;
  int64_t stride = 0;
  int64_t senders_begin = 0, senders_end = 0;
  int64_t first_round = 0;

  // Calls f(m) for the chunks that `rank` sends in `round`, of `chunks` in all.
  template <class F>
  void ForChunks(int64_t rank, int64_t round, int64_t chunks, F&& f) const {
    const int64_t begin = FirstChunk(rank, round - first_round, chunks);
    for (int64_t c = 0; c < count; ++c) f((begin + c) % chunks);
  }
  // First chunk that `rank` sends in repetition `i`.
  int64_t FirstChunk(int64_t rank, int64_t i, int64_t chunks) const;
  // The rank that sends to `rank`, or -1 where nobody does.
  int64_t SenderTo(int64_t rank, int64_t nodes) const;
  // The rank that `rank` sends to, or -1 where it does not send.
  int64_t ReceiverFrom(int64_t rank, int64_t nodes) const;
};

struct Schedule {
  int64_t nodes = 1, local = 1;
  bool split = true;
  std::vector<Phase> phases;
  int64_t rounds = 0;

  int64_t ranks() const { return nodes * local; }
  int64_t chunks() const { return split ? nodes : 1; }
  const Phase& PhaseOf(int64_t round) const;
  bool HasInter() const;

  // Reads the int64 program of pccl_jax/schedule/encode.py. Returns an error text, or "".
  static std::string Decode(const int64_t* program, size_t size, Schedule* schedule);
};

}  // namespace pccl

#endif  // PCCL_FFI_SCHEDULE_H_
