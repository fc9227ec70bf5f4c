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

}  // namespace pccl
