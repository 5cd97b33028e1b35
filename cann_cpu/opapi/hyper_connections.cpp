// SPDX-License-Identifier: Apache-2.0
// Manifold-constrained hyper-connections: a layer reads and writes several residual streams x (tokens, n, size) by
// gates that come from the streams themselves, and mixes them by a doubly stochastic matrix.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/zeros.h>
#include <acl/acl_base.h>

#include <functional>
#include <string_view>

#include "checks.h"

using namespace cann_cpu;

namespace {

constexpr int64_t kStreamNumbers = 2 << 20;  // converted at a time

bool is_ascend950() { return std::string_view(aclrtGetSocName()).starts_with("Ascend950"); }

int64_t factorial(int64_t n) { return n <= 1 ? 1 : n * factorial(n - 1); }

// x as streams of tokens, in (tokens, n, size) or (batch, tokens, n, size).
struct Streams {
  In x;

  int64_t count() const { return x.size(-2); }
  int64_t size() const { return x.size(-1); }
  int64_t tokens() const { return x.numel() / (count() * size()); }

  void check() const {
    TORCH_CHECK(x.dim() == 3 || x.dim() == 4, "x has shape ", x.sizes(), "; expected 3 or 4 dimensions");
    TORCH_CHECK(x.numel() > 0, "x is empty, shape ", x.sizes());
    if (is_ascend950()) {
      TORCH_CHECK(count() == 4 || count() == 6 || count() == 8, "x has ", count(), " streams; expected 4, 6 or 8");
      TORCH_CHECK(size() % 16 == 0, "x has streams of ", size(), " numbers; expected a multiple of 16");
      return;
    }
    TORCH_CHECK(count() == 4, "x has ", count(), " streams, shape ", x.sizes(), "; expected 4");
    TORCH_CHECK(size() % 128 == 0 && size() <= 100000, "x has streams of ", size(),
                " numbers; expected a multiple of 128 up to 100000");
  }

  // The shape of what each token has.
  void check_by_token(const char* name, In tensor, std::vector<int64_t> shape) const {
    shape.insert(shape.begin(), x.sizes().begin(), x.sizes().end() - 2);
    check_shape(name, tensor, shape);
  }
  void check_by_token(const char* name, OptionalOut tensor, std::vector<int64_t> shape) const {
    if (tensor.has_value()) check_by_token(name, static_cast<In>(*tensor), std::move(shape));
  }

  // Calls part(first, count) for some tokens after the other.
  void by_parts(const std::function<void(int64_t first, int64_t part)>& run) const {
    const int64_t step = std::max<int64_t>(kStreamNumbers / (count() * size()), 1);
    for (int64_t first = 0; first < tokens(); first += step) run(first, std::min(step, tokens() - first));
  }

  // Some tokens of a tensor, as a view where it is contiguous; with one row a token.
  at::Tensor rows(In tensor, int64_t first, int64_t part) const {
    return tensor.flatten(0, x.dim() - 3).narrow(0, first, part);
  }
  at::Tensor wide(In tensor, int64_t first, int64_t part) const { return rows(tensor, first, part).to(at::kFloat); }
};

// The weights of the gates: of reading, of writing, and of mixing where there are as many.
struct Gates {
  const Streams& streams;
  In phi;
  OptionalIn gamma;

  int64_t mixing() const { return phi.size(0) - 2 * streams.count(); }

  void check(In alpha, In bias) const {
    const int64_t n = streams.count();
    check_rank("phi", phi, 2);
    const bool is_mixing = alpha.numel() == 3;
    TORCH_CHECK(alpha.dim() == 1 && (is_mixing || alpha.numel() == 2), "alpha has shape ", alpha.sizes(),
                "; expected [3] or [2]");
    const bool is_served =
        is_mixing ? mixing() == n * n || (mixing() == factorial(n) && !is_ascend950()) : mixing() == 0;
    TORCH_CHECK(is_served, "phi has shape ", phi.sizes(), "; expected ", 2 * n + (is_mixing ? n * n : 0),
                " rows, as alpha has ", alpha.numel(), " elements");
    check_shape("phi", phi, {phi.size(0), n * streams.size()});
    check_shape("bias", bias, {phi.size(0)});
    if (gamma.has_value()) check_shape("gamma", *gamma, {n, streams.size()});
  }

  std::vector<int64_t> mixing_shape() const {
    const int64_t n = streams.count();
    return mixing() == n * n ? std::vector<int64_t>{n, n} : std::vector<int64_t>{mixing()};
  }

  // x (tokens, n * size) as the weights take it.
  at::Tensor scaled(const at::Tensor& x) const { return gamma.has_value() ? x * gamma->flatten() : x; }

  // The parts of the last dimension: reading, writing, mixing.
  std::vector<at::Tensor> split(In tensor) const {
    const int64_t n = streams.count();
    return tensor.split_with_sizes({n, n, mixing()}, -1);
  }
};

struct MhcPreArguments {
  In x, phi, alpha, bias;
  OptionalIn gamma;
  double norm_eps, hc_eps;
  Out h_in, h_post;
  OptionalOut h_res, inv_rms, h_mix, h_pre;

  void run() const {
    const Streams streams{x};
    streams.check();
    const Gates gates{streams, phi, gamma};
    gates.check(alpha, bias);
    const int64_t n = streams.count();
    const bool is_mixing = gates.mixing() > 0;
    streams.check_by_token("h_in", static_cast<In>(h_in), {streams.size()});
    streams.check_by_token("h_post", static_cast<In>(h_post), {n});
    TORCH_CHECK(!is_mixing || h_res.has_value(), "h_res is null; alpha of 3 elements needs it");
    if (is_mixing) streams.check_by_token("h_res", h_res, gates.mixing_shape());
    TORCH_CHECK(inv_rms.has_value() == h_mix.has_value() && inv_rms.has_value() == h_pre.has_value(),
                "inv_rms, h_mix and h_pre must all be given, or all be null");
    streams.check_by_token("inv_rms", inv_rms, {});
    streams.check_by_token("h_mix", h_mix, {phi.size(0)});
    streams.check_by_token("h_pre", h_pre, {n});
    if (!is_mixing && h_res.has_value()) h_res->zero_();
    streams.by_parts([&](int64_t first, int64_t part) {
      const auto of_streams = streams.wide(x, first, part), flat = of_streams.flatten(1);
      const auto inverse = at::rsqrt(flat.square().mean({-1}, /*keepdim=*/true) + norm_eps);
      const auto mixed = at::matmul(gates.scaled(flat), phi.t());
      const auto parts = gates.split(mixed * inverse), biases = gates.split(bias);
      const auto pre = (parts[0] * alpha[0] + biases[0]).sigmoid_().add_(hc_eps);
      const auto post = (parts[1] * alpha[1] + biases[1]).sigmoid_().mul_(2);
      if (!is_mixing) post.add_(hc_eps);
      streams.rows(h_post, first, part).copy_(post);
      if (is_mixing) {
        const auto mixing = streams.rows(*h_res, first, part);
        mixing.copy_((parts[2] * alpha[2] + biases[2]).view(mixing.sizes()));
      }
      streams.rows(h_in, first, part).copy_(at::bmm(pre.unsqueeze(1), of_streams).squeeze(1));
      if (!h_pre.has_value()) return;
      streams.rows(*inv_rms, first, part).copy_(inverse.squeeze(1));
      streams.rows(*h_mix, first, part).copy_(mixed);
      streams.rows(*h_pre, first, part).copy_(pre);
    });
  }
};

struct MhcPreGradients {
  In x, phi, alpha, grad_h_in, grad_h_post, grad_h_res, inv_rms, h_mix, h_pre, h_post;
  OptionalIn gamma, grad_x_post;
  double hc_eps;
  Out grad_x, grad_phi, grad_alpha, grad_bias;
  OptionalOut grad_gamma;

  void run() const {
    const Streams streams{x};
    streams.check();
    const Gates gates{streams, phi, gamma};
    TORCH_CHECK(alpha.dim() == 1 && alpha.size(0) == 3, "alpha has shape ", alpha.sizes(), "; expected [3]");
    gates.check(alpha, grad_bias);
    const int64_t n = streams.count(), size = streams.size();
    streams.check_by_token("grad_h_in", grad_h_in, {size});
    streams.check_by_token("grad_h_post", grad_h_post, {n});
    streams.check_by_token("grad_h_res", grad_h_res, gates.mixing_shape());
    streams.check_by_token("inv_rms", inv_rms, {});
    streams.check_by_token("h_mix", h_mix, {phi.size(0)});
    streams.check_by_token("h_pre", h_pre, {n});
    streams.check_by_token("h_post", h_post, {n});
    if (grad_x_post.has_value()) check_shape("grad_x_post", *grad_x_post, x.sizes());
    check_shape("grad_x", grad_x, x.sizes());
    check_shape("grad_phi", grad_phi, phi.sizes());
    check_shape("grad_alpha", grad_alpha, {3});
    const bool has_gamma = gamma.has_value() && grad_gamma.has_value();
    if (has_gamma) check_shape("grad_gamma", *grad_gamma, gamma->sizes());
    const auto of_phi = at::zeros(phi.sizes(), at::kFloat), of_bias = at::zeros({phi.size(0)}, at::kFloat);
    const auto of_alpha = at::zeros({3}, at::kFloat), of_gamma = at::zeros({n * size}, at::kFloat);
    streams.by_parts([&](int64_t first, int64_t part) {
      const auto wide = [&](In tensor) { return streams.wide(tensor, first, part); };
      const auto of_streams = wide(x), flat = of_streams.flatten(1), dy = wide(grad_h_in), pre = wide(h_pre);
      const auto post = wide(h_post), inverse = wide(inv_rms).unsqueeze(1), mixed = wide(h_mix);
      const at::Scalar one(1);
      const auto sigmoid = pre - at::Scalar(hc_eps);
      const std::vector<at::Tensor> of_gates{
          at::bmm(of_streams, dy.unsqueeze(2)).squeeze(2) * sigmoid * (one - sigmoid),
          wide(grad_h_post) * post * (one - post / at::Scalar(2)), wide(grad_h_res).flatten(1)};
      const auto inputs = gates.split(mixed * inverse);
      std::vector<at::Tensor> scaled;
      for (int64_t i = 0; i < 3; ++i) {
        const auto& each = of_gates[static_cast<size_t>(i)];
        of_alpha[i].add_((each * inputs[static_cast<size_t>(i)]).sum());
        scaled.push_back(each * alpha[i]);
      }
      of_bias.add_(at::cat(of_gates, 1).sum(0));
      const auto of_products = at::cat(scaled, 1);  // after the norm
      const auto of_mixed = of_products * inverse;
      const auto of_inverse = (of_products * mixed).sum({-1}, /*keepdim=*/true);
      of_phi.addmm_(of_mixed.t(), gates.scaled(flat));
      const auto of_scaled = at::matmul(of_mixed, phi);
      if (has_gamma) of_gamma.add_((flat * of_scaled).sum(0));
      auto dx = gates.scaled(of_scaled) - flat * (of_inverse * inverse.pow(3) / at::Scalar(n * size));
      dx.view({part, n, size}).baddbmm_(pre.unsqueeze(2), dy.unsqueeze(1));
      if (grad_x_post.has_value()) dx.add_(wide(*grad_x_post).flatten(1));
      streams.rows(grad_x, first, part).copy_(dx.view({part, n, size}));
    });
    grad_phi.copy_(of_phi);
    grad_bias.copy_(of_bias);
    grad_alpha.copy_(of_alpha);
    if (has_gamma) grad_gamma->copy_(of_gamma.view({n, size}));
  }
};

using HalfFloat32 = Ignored<int64_t>;  // op_impl_mode: products in float32 or HF32; the CPU has float32

void check_post(const Streams& streams, OptionalIn h_res, In h_out, In h_post) {
  streams.check();
  TORCH_CHECK(h_res.has_value() || is_ascend950(), "h_res is null; only Ascend950 supports it so");
  if (h_res.has_value()) streams.check_by_token("h_res", *h_res, {streams.count(), streams.count()});
  streams.check_by_token("h_out", h_out, {streams.size()});
  streams.check_by_token("h_post", h_post, {streams.count()});
}

}  // namespace

#define MHC_PRE_DTYPES \
  "x: float16 bfloat16; h_in: as x; phi, alpha, bias, gamma, h_post, h_res, inv_rms, h_mix, h_pre: float32"
ACLNN_TYPED(
    MhcPre, MHC_PRE_DTYPES,
    [](In x, In phi, In alpha, In bias, OptionalIn gamma, double norm_eps, double hc_eps, Out h_in, Out h_post,
       OptionalOut h_res, OptionalOut inv_rms, OptionalOut h_mix, OptionalOut h_pre) {
      MhcPreArguments{x, phi, alpha, bias, gamma, norm_eps, hc_eps, h_in, h_post, h_res, inv_rms, h_mix, h_pre}.run();
    });
ACLNN_TYPED(
    MhcPreV2, MHC_PRE_DTYPES,
    [](In x, In phi, In alpha, In bias, OptionalIn gamma, double norm_eps, double hc_eps, HalfFloat32, Out h_in,
       Out h_post, OptionalOut h_res, OptionalOut inv_rms, OptionalOut h_mix, OptionalOut h_pre) {
      MhcPreArguments{x, phi, alpha, bias, gamma, norm_eps, hc_eps, h_in, h_post, h_res, inv_rms, h_mix, h_pre}.run();
    });

#define MHC_PRE_BACKWARD_DTYPES                                                                                      \
  "x: float16 bfloat16; grad_h_in, grad_x_post, grad_x: as x; phi, alpha, grad_h_post, grad_h_res, inv_rms, h_mix, " \
  "h_pre, h_post, gamma, grad_phi, grad_alpha, grad_bias, grad_gamma: float32"
ACLNN_TYPED(MhcPreBackward, MHC_PRE_BACKWARD_DTYPES,
            [](In x, In phi, In alpha, In grad_h_in, In grad_h_post, In grad_h_res, In inv_rms, In h_mix, In h_pre,
               In h_post, OptionalIn gamma, OptionalIn grad_x_post, float hc_eps, Out grad_x, Out grad_phi,
               Out grad_alpha, Out grad_bias, OptionalOut grad_gamma) {
              MhcPreGradients{x,       phi,    alpha,    grad_h_in,  grad_h_post, grad_h_res,
                              inv_rms, h_mix,  h_pre,    h_post,     gamma,       grad_x_post,
                              hc_eps,  grad_x, grad_phi, grad_alpha, grad_bias,   grad_gamma}
                  .run();
            });
ACLNN_TYPED(MhcPreBackwardV2, MHC_PRE_BACKWARD_DTYPES,
            [](In x, In phi, In alpha, In grad_h_in, In grad_h_post, In grad_h_res, In inv_rms, In h_mix, In h_pre,
               In h_post, OptionalIn gamma, OptionalIn grad_x_post, float hc_eps, HalfFloat32, Out grad_x, Out grad_phi,
               Out grad_alpha, Out grad_bias, OptionalOut grad_gamma) {
              MhcPreGradients{x,       phi,    alpha,    grad_h_in,  grad_h_post, grad_h_res,
                              inv_rms, h_mix,  h_pre,    h_post,     gamma,       grad_x_post,
                              hc_eps,  grad_x, grad_phi, grad_alpha, grad_bias,   grad_gamma}
                  .run();
            });

// Stream j becomes the sum of h_res[i, j] times stream i, or stays, and takes its share of the layer's result.
ACLNN_TYPED(MhcPost, "x: float16 bfloat16; h_out, out: as x; h_res, h_post: float32",
            [](In x, OptionalIn h_res, In h_out, In h_post, Out out) {
              const Streams streams{x};
              check_post(streams, h_res, h_out, h_post);
              check_shape("out", out, x.sizes());
              streams.by_parts([&](int64_t first, int64_t part) {
                const auto wide = [&](In tensor) { return streams.wide(tensor, first, part); };
                const auto before = wide(x);
                const auto mixed = h_res.has_value() ? at::bmm(wide(*h_res).mT(), before) : before;
                const auto added = at::bmm(wide(h_post).unsqueeze(2), wide(h_out).unsqueeze(1));
                streams.rows(out, first, part).copy_(mixed + added);
              });
            });

ACLNN_TYPED(MhcPostBackward,
            "grad_output: float16 bfloat16; x, h_out, grad_x, grad_h_out: as grad_output; h_res, h_post, grad_h_res, "
            "grad_h_post: float32",
            [](In grad_output, In x, OptionalIn h_res, In h_out, In h_post, Out grad_x, Out grad_h_res, Out grad_h_out,
               Out grad_h_post) {
              const Streams streams{x};
              check_post(streams, h_res, h_out, h_post);
              check_shape("grad_output", grad_output, x.sizes());
              check_shape("grad_x", grad_x, x.sizes());
              streams.check_by_token("grad_h_res", static_cast<In>(grad_h_res), {streams.count(), streams.count()});
              check_shape("grad_h_out", grad_h_out, h_out.sizes());
              check_shape("grad_h_post", grad_h_post, h_post.sizes());
              streams.by_parts([&](int64_t first, int64_t part) {
                const auto wide = [&](In tensor) { return streams.wide(tensor, first, part); };
                const auto rows = [&](In tensor) { return streams.rows(tensor, first, part); };
                const auto dy = wide(grad_output);
                rows(grad_x).copy_(h_res.has_value() ? at::bmm(wide(*h_res), dy) : dy);
                rows(grad_h_res).copy_(at::bmm(wide(x), dy.mT()));
                rows(grad_h_out).copy_(at::bmm(wide(h_post).unsqueeze(1), dy).squeeze(1));
                rows(grad_h_post).copy_(at::bmm(dy, wide(h_out).unsqueeze(2)).squeeze(2));
              });
            });

namespace {

constexpr int64_t kPadded = 8;            // rows and sums, in what the forward pass keeps
constexpr int64_t kMatrices = 16 * 1024;  // at a time

void check_matrices(const char* name, In x) {
  TORCH_CHECK((x.dim() == 3 || x.dim() == 4) && x.size(-1) == x.size(-2) && x.numel() > 0, name, " has shape ",
              x.sizes(), "; expected matrices [tokens, n, n] or [batch, tokens, n, n]");
  TORCH_CHECK(x.size(-1) == 4 || x.size(-1) == 6 || x.size(-1) == 8, name, " has matrices of ", x.size(-1),
              " rows; expected 4, 6 or 8");
}

// What Sinkhorn's iterations keep: (2 * iterations, n, 8, tokens), rows padded to 8, and sums (2 * iterations, 8,
// tokens). The sums of an even step belong to rows, of an odd one to columns; step 0 has none.
struct SinkhornSteps {
  at::Tensor norms, sums;

  SinkhornSteps(In norm, In sum, int64_t n, int64_t tokens)
      : norms(norm.view({-1, n, kPadded, tokens})), sums(sum.view({-1, kPadded, tokens})) {}

  // (tokens, n, n)
  at::Tensor norm(int64_t step, int64_t first, int64_t part) const {
    return norms[step].narrow(1, 0, norms.size(1)).narrow(2, first, part).permute({2, 0, 1});
  }
  // As it is broadcast to the matrices.
  at::Tensor sum(int64_t step, int64_t first, int64_t part) const {
    const auto each = sums[step].narrow(0, 0, norms.size(1)).narrow(1, first, part).t();
    return each.unsqueeze(step % 2 == 0 ? 2 : 1);
  }
};

}  // namespace

ACLNN_TYPED(MhcSinkhorn, "x, output, norm_out, sum_out: float32",
            [](In x, float eps, int64_t num_iters, Out output, OptionalOut norm_out, OptionalOut sum_out) {
              check_matrices("x", x);
              check_range("num_iters", num_iters, 1, 100);
              check_shape("output", output, x.sizes());
              const int64_t n = x.size(-1), tokens = x.numel() / (n * n), steps = 2 * num_iters;
              const auto check_kept = [](const char* name, OptionalOut tensor, int64_t expected) {
                if (!tensor.has_value()) return;
                TORCH_CHECK(tensor->numel() == expected && tensor->is_contiguous(), name, " has ", tensor->numel(),
                            " elements, shape ", tensor->sizes(), "; expected ", expected, ", contiguous");
              };
              TORCH_CHECK(norm_out.has_value() == sum_out.has_value(),
                          "norm_out and sum_out must both be given, or null");
              check_kept("norm_out", norm_out, steps * n * kPadded * tokens);
              check_kept("sum_out", sum_out, steps * kPadded * tokens);
              std::optional<SinkhornSteps> kept;
              if (norm_out.has_value()) kept.emplace(norm_out->zero_(), sum_out->zero_(), n, tokens);
              const auto matrices = x.reshape({tokens, n, n}), results = output.flatten(0, x.dim() - 3);
              for (int64_t first = 0; first < tokens; first += kMatrices) {
                const int64_t part = std::min(kMatrices, tokens - first);
                auto matrix = at::_softmax(matrices.narrow(0, first, part), -1, false).add_(eps);
                if (kept.has_value()) kept->norm(0, first, part).copy_(matrix);
                for (int64_t step = 1; step < steps; ++step) {
                  const auto sum = matrix.sum({step % 2 == 0 ? -1 : -2}, /*keepdim=*/true).add_(eps);
                  matrix = matrix / sum;
                  if (!kept.has_value()) continue;
                  kept->norm(step, first, part).copy_(matrix);
                  kept->sum(step, first, part).copy_(sum);
                }
                results.narrow(0, first, part).copy_(matrix);
              }
            });

ACLNN_TYPED(MhcSinkhornBackward, "grad_output, norm_out, sum_out, out: float32",
            [](In grad_output, In norm_out, In sum_out, Out out) {
              check_matrices("grad_output", grad_output);
              check_shape("out", out, grad_output.sizes());
              const int64_t n = grad_output.size(-1), tokens = grad_output.numel() / (n * n);
              const int64_t steps = sum_out.numel() / (kPadded * tokens);
              TORCH_CHECK(sum_out.numel() == steps * kPadded * tokens && steps % 2 == 0 && steps >= 2 && steps <= 200,
                          "sum_out has ", sum_out.numel(), " elements; expected 2 * num_iters * ", kPadded * tokens);
              TORCH_CHECK(norm_out.numel() == steps * n * kPadded * tokens, "norm_out has ", norm_out.numel(),
                          " elements; expected ", steps * n * kPadded * tokens);
              const SinkhornSteps kept(norm_out.contiguous(), sum_out.contiguous(), n, tokens);
              const auto gradients = grad_output.reshape({tokens, n, n}), results = out.flatten(0, out.dim() - 3);
              for (int64_t first = 0; first < tokens; first += kMatrices) {
                const int64_t part = std::min(kMatrices, tokens - first);
                auto dy = gradients.narrow(0, first, part);
                for (int64_t step = steps - 1; step >= 0; --step) {
                  const auto norm = kept.norm(step, first, part);
                  const auto rest = dy - (dy * norm).sum({step % 2 == 0 ? -1 : -2}, /*keepdim=*/true);
                  dy = step == 0 ? rest * norm : rest / kept.sum(step, first, part);
                }
                results.narrow(0, first, part).copy_(dy);
              }
            });
