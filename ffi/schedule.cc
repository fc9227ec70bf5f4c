#include "ffi/schedule.h"

#include <algorithm>

namespace pccl {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kHeader = 5;
constexpr size_t kRecord = 12;

int64_t Mod(int64_t value, int64_t modulus) {
  const int64_t remainder = value % modulus;
  return remainder < 0 ? remainder + modulus : remainder;
}

Phase DecodePhase(const int64_t* record) {
  Phase phase;
  phase.intra = record[0] == 0;
  phase.vendor = record[0] == 2;
  phase.inter = record[0] == 3;
  if (record[0] != 1) {
    phase.collective = static_cast<Collective>(record[1]);
    return phase;
  }
  phase.to = {-1, record[1], record[2]};
  phase.first = {record[3], record[4], record[5]};
  phase.count = record[6];
  phase.action = static_cast<Action>(record[7]);
  phase.times = record[8];
  phase.stride = record[9];
  phase.senders_begin = record[10];
  phase.senders_end = record[11];
  return phase;
}

}  // namespace

const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllReduce:
      return "all_reduce";
  }
  return "unknown collective";
}

int64_t Index::At(int64_t rank, int64_t modulus) const {
  return Mod(((rank & keep) ^ flip) + add, modulus);
}

int64_t Phase::FirstChunk(int64_t rank, int64_t i, int64_t chunks) const {
  return Mod(first.At(rank, chunks) + i * stride, chunks);
}

int64_t Phase::SenderTo(int64_t rank, int64_t nodes) const {
  const int64_t sender = Mod(rank - to.add, nodes) ^ to.flip;
  return sender >= senders_begin && sender < senders_end ? sender : -1;
}

int64_t Phase::ReceiverFrom(int64_t rank, int64_t nodes) const {
  return rank >= senders_begin && rank < senders_end ? to.At(rank, nodes) : -1;
}

const Phase& Schedule::PhaseOf(int64_t round) const {
  size_t k = 0;
  while (round >= phases[k].first_round + phases[k].times) ++k;
  return phases[k];
}

bool Schedule::HasInter() const {
  return std::any_of(phases.begin(), phases.end(), [](const Phase& p) { return p.inter; });
}

std::string Schedule::Decode(const int64_t* program, size_t size, Schedule* schedule) {
  if (size < kHeader || program[0] != kVersion) return "schedule: unknown program version";
  schedule->nodes = program[1];
  schedule->local = program[2];
  schedule->split = program[3] != 0;
  const auto phases = static_cast<size_t>(program[4]);
  if (schedule->nodes < 1 || schedule->local < 1) return "schedule: empty group";
  if (size != kHeader + phases * kRecord) return "schedule: program of the wrong length";
  schedule->rounds = 0;
  for (size_t k = 0; k < phases; ++k) {
    Phase phase = DecodePhase(program + kHeader + k * kRecord);
    if (phase.vendor && (phases != 1 || schedule->local != 1)) {
      return "schedule: the MPI library does a collective whole or not at all";
    }
    const bool step = !phase.intra && !phase.inter && !phase.vendor;
    if (step && (phase.count < 1 || phase.count > schedule->chunks() || phase.senders_begin < 0 ||
                 phase.senders_end > schedule->nodes)) {
      return "schedule: step " + std::to_string(k) + " is malformed";
    }
    phase.first_round = schedule->rounds;
    schedule->rounds += phase.times;
    schedule->phases.push_back(phase);
  }
  return "";
}

}  // namespace pccl
