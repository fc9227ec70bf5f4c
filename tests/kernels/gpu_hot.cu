// The kernels that move most bytes, alone, so that they compile in seconds for a look at the code.

#include "kernels/gpu/fold_kernel.h"

namespace pccl::kernels {

template int Launch::Run<Plain<float>, Sum, 2>() const;
template int Launch::Run<Plain<float>, Sum, 8>() const;
template int Launch::Run<Native<Bfloat16>::type, Sum, 2>() const;
template int Launch::Run<Native<Bfloat16>::type, Sum, 8>() const;
template int Launch::Run<Plain<uint64_t>, Sum, 1>() const;

}  // namespace pccl::kernels
