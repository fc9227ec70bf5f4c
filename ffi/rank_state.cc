#include "ffi/rank_state.h"

namespace pccl {

View RankState::In(Home home, const Layout& layout, int64_t chunk) const {
  char* base = Base(home);
  if (!layout.split) return layout.geometry.Everything(base);
  const bool holds_one = (home == Home::kIn && layout.collective == Collective::kAllGather) ||
                         (home == Home::kOut && layout.collective == Collective::kReduceScatter);
  return holds_one ? layout.geometry.Own(base) : layout.geometry.Chunk(base, layout.places[chunk]);
}

Home RankState::NextHome(const Layout& layout, int64_t chunk, int64_t round) const {
  if (!layout.split) {
    return HomeOf(layout, chunk, round) == Home::kOut ? Home::kWork : Home::kOut;
  }
  if (layout.collective == Collective::kReduceScatter && chunk != rank) return Home::kWork;
  return Home::kOut;
}

ByteStream MessageBytes(const Layout& layout, const Schedule& schedule, const RankState& sender,
                        int64_t round) {
  const Phase& phase = schedule.PhaseOf(round);
  const int64_t node = sender.rank / schedule.local, index = sender.rank % schedule.local;
  ByteStream bytes;
  phase.ForChunks(node, round, schedule.chunks(), [&](int64_t m) {
    const int64_t chunk = layout.split ? m * schedule.local + index : 0;
    bytes.Append(sender.At(layout, chunk, round));
  });
  return bytes;
}

void SettleAfterIntra(const Layout& layout, const Schedule& schedule, const Phase& phase,
                      int64_t index, RankState* rank) {
  const int64_t round = phase.first_round;
  if (phase.collective == Collective::kReduceScatter) {
    for (int64_t m = 0; m < schedule.nodes; ++m) {
      const int64_t chunk = m * schedule.local + index;
      rank->MoveTo(rank->NextHome(layout, chunk, round), layout, chunk, round);
    }
  } else {
    const int64_t chunks = layout.split ? schedule.ranks() : 1;
    for (int64_t c = 0; c < chunks; ++c) rank->MoveTo(Home::kOut, layout, c, round);
  }
}

}  // namespace pccl
