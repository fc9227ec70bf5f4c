// What one rank holds while a schedule runs: for each chunk, in which of its buffers.
#ifndef PCCL_FFI_RANK_STATE_H_
#define PCCL_FFI_RANK_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ffi/byte_stream.h"
#include "ffi/geometry.h"
#include "ffi/schedule.h"
#include "kernels/reduce.h"

namespace pccl {

struct RankBuffers {
  const void* in = nullptr;
  void* out = nullptr;
};

// The facts that are the same for every rank of an execution.
struct Layout {
  Collective collective = Collective::kAllGather;
  bool split = true;
  Geometry geometry;
  const int64_t* places = nullptr;  // schedule rank -> place on the axis
  ReduceFn reduce = nullptr;
  bool stream = false;  // outputs are too large to stay in cache
};

enum class Home : uint8_t { kIn, kWork, kOut };

// Chunks are named by the schedule rank that owns them; a vector that travels whole is chunk 0.
// A rank's homes change only while its lock is held or inside its node phase; `progress`, the
// number of rounds the rank has completed, publishes them.
struct alignas(64) RankState {
  int64_t rank = 0;
  char* in = nullptr;
  char* work = nullptr;  // as large as the whole array; null where no phase needs it
  char* out = nullptr;
  // By chunk; of a vector that travels whole by round, as peers read what it was at theirs.
  std::vector<Home> homes;
  std::atomic<int64_t> progress{0};
  std::atomic_flag busy = ATOMIC_FLAG_INIT;
  size_t phase = 0;
  int64_t posted = 0;  // rounds whose messages have been sent
  bool finished = false;

  // Whether the rank belongs to this process; of the others nothing is known here.
  bool present() const { return in != nullptr; }

  char* Base(Home home) const { return home == Home::kIn ? in : home == Home::kWork ? work : out; }
  // Where the rank's value of `chunk` was before `round`.
  Home HomeOf(const Layout& layout, int64_t chunk, int64_t round) const {
    return homes[static_cast<size_t>(layout.split ? chunk : round)];
  }
  View At(const Layout& layout, int64_t chunk, int64_t round) const {
    return In(HomeOf(layout, chunk, round), layout, chunk);
  }
  // The place of `chunk` in the given buffer.
  View In(Home home, const Layout& layout, int64_t chunk) const;
  // Where the value of `chunk` that `round` brings goes. A partial that others may still be
  // reading is never overwritten: a vector that travels whole alternates between work and out.
  Home NextHome(const Layout& layout, int64_t chunk, int64_t round) const;
  void MoveTo(Home home, const Layout& layout, int64_t chunk, int64_t round) {
    homes[static_cast<size_t>(layout.split ? chunk : round + 1)] = home;
  }
};

// What `sender` sends in `round`, a round of a step phase, from where it lies.
ByteStream MessageBytes(const Layout& layout, const Schedule& schedule, const RankState& sender,
                        int64_t round);

// The homes of rank `index` of a node after an intra phase.
void SettleAfterIntra(const Layout& layout, const Schedule& schedule, const Phase& phase,
                      int64_t index, RankState* rank);

}  // namespace pccl

#endif  // PCCL_FFI_RANK_STATE_H_
