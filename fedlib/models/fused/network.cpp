// Forward and backward pass of a small convolutional network on one core, in float32.
//
// The network is a list of blocks, each
//     convolution or linear layer -> batch norm (or none) -> ReLU (or none) -> 2x2 max-pooling (or none).
// A linear layer is a 1x1 convolution of a 1x1 image, so that there is one kind of block only.
//
// Layout. Weights and their gradients are in PyTorch's layout. Between the layers numbers lie as [channel][row][column]
// [sample]: the batch is innermost, so that a vector operation does the same for 4 (NEON), 8 (AVX2) or 16 (AVX-512)
// samples. The batch is rounded up to whole vectors; lanes that hold no sample are left out of batch norm's sums and
// have gradient 0. A row of an image is `width * n` vectors without gaps, n vectors a pixel: shifting a row by one
// pixel is adding n to a pointer. One routine, `convolve`, computes all matrix products (see `Product`) but the
// gradient of a convolution's weights, `weight_gradient`, and what is behind pooling, `behind_pooling`.
//
// The same bits on every CPU. Sums over samples are 16 partial sums, one for every sample of a block of 16, however many
// vectors make a block, and these are added in order at the end. What is multiplied and added with one rounding says so (`fma`), for
// compilers choose as their CPU likes; nothing else is contracted (-ffp-contract=off). exp is taken in double precision
// and rounded, so that libraries agree.
//
// Built by build.py, called by network.py, which checks all sizes, types and addresses before.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int BYTES = 64, REGISTERS = 32;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int BYTES = 32, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int BYTES = 16, REGISTERS = 32;
#else
#error "compiled steps need AVX2 with FMA, AVX-512 or NEON"
#endif
constexpr int LANES = BYTES / 4, BLOCK = 16, SPLIT = BLOCK / LANES;  // samples in a vector, in a block; vectors in it
constexpr int NEAR = 16 << 10, MIDDLE = 192 << 10;  // bytes that surely fit into first and second-level caches
typedef float vec __attribute__((vector_size(BYTES)));
typedef float loose_vec __attribute__((vector_size(BYTES), aligned(4)));  // at any address
typedef int32_t ivec __attribute__((vector_size(BYTES)));

static inline vec all(float a) { return a - vec{}; }  // not vec{} + a, which is an addition: -0 would become 0
static inline vec fma(vec a, vec b, vec c) {  // a * b + c, rounded once
#if defined(__AVX512F__)
  return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}
static inline float sum(vec a, float total = 0) {
  for (int i = 0; i < LANES; i++) total += a[i];
  return total;
}
static inline float sum_of_block(const vec* a) {
  float total = 0;
  for (int g = 0; g < SPLIT; g++) total = sum(a[g], total);
  return total;
}

struct Block {  // the same fields, in this order, in network.py; a null pointer: there is none, or it is not asked for
  int32_t channels, height, width;  // of the input
  int32_t out, kernel, border;      // channels made, side of the kernel, rows of zeros around the input
  int32_t norm, relu, pool;         // norm: 0 none, 1 by the batch's statistics, 2 by the running ones
  float eps, momentum;
  const float *weight, *bias, *scale, *shift, *mean, *var;  // mean, var: running statistics
  float *new_mean, *new_var, *d_weight, *d_bias, *d_scale, *d_shift;

  int rows() const { return height + 2 * border - kernel + 1; }
  int columns() const { return width + 2 * border - kernel + 1; }
  long pixels() const { return (long)rows() * columns(); }
  long pooled() const { return pool ? (long)(rows() / 2) * (columns() / 2) : pixels(); }
  bool in_place() const { return norm != 1 && !pool; }
  bool trained() const { return d_weight || d_bias || d_scale || d_shift; }
};

// Matrix products ---------------------------------------------------------------------------------------------------

// out[o][h][w] = bias[o] + sum over channels i, rows r, columns s of weight(o, i, r, s) * x[i][h + r - border][w + s -
// border], where weight(o, i, r, s) = w[o * by_out + i * by_in + r * by_row + s * by_column]. Planes of x and out are
// `x_plane` and `out_plane` vectors apart. By its strides this is a convolution or a linear layer, the gradient with
// respect to the input of both (channels change places, the kernel is turned by 180 degrees), or a linear layer's
// gradient with respect to its weights.
struct Product {
  int out, in, height, width, kernel, border;
  long n;  // vectors a pixel
  long by_out, by_in, by_row, by_column, x_plane, out_plane;
};

struct Part {  // of a product's sum: so many input channels, rows and columns of the kernel; more: out already has some
  int channels, r0, r1, s0, s1;
  bool more;
};

// R channels of N neighbouring vectors: the sums stay in registers.
template <int R, int N>
static void tile(const Product& p, const Part& t, const vec* x, const float* w, const float* bias, loose_vec* out) {
  vec a[R][N];
  for (int o = 0; o < R; o++)
    for (int k = 0; k < N; k++) a[o][k] = t.more ? (vec)out[o * p.out_plane + k] : all(bias ? bias[o] : 0);
  const int r0 = t.r0, r1 = t.r1, s0 = t.s0, s1 = t.s1;
  int many = t.channels, few = s1 - s0;
  long x_many = p.x_plane, w_many = p.by_in, x_few = p.n, w_few = p.by_column;
  if (p.kernel == 1) std::swap(many, few), std::swap(x_many, x_few), std::swap(w_many, w_few);  // few: the inner loop
  for (int i = 0; i < many; i++)
    for (int r = r0; r < r1; r++) {
      const vec* from = x + i * x_many + (r * (long)p.width + s0) * p.n;
      const float* weight = w + i * w_many + r * p.by_row + s0 * p.by_column;
      for (int s = 0; s < few; s++, from += x_few, weight += w_few) {
        vec b[N];
#pragma GCC unroll 4
        for (int k = 0; k < N; k++) b[k] = from[k];
#pragma GCC unroll 16
        for (int o = 0; o < R; o++) {
          const vec factor = all(weight[o * p.by_out]);
#pragma GCC unroll 4
          for (int k = 0; k < N; k++) a[o][k] = fma(factor, b[k], a[o][k]);
        }
      }
    }
  for (int o = 0; o < R; o++)
    for (int k = 0; k < N; k++) out[o * p.out_plane + k] = a[o][k];
}

constexpr int TALL = REGISTERS == 32 ? 12 : 6;  // channels in a tile of two vectors: 2 TALL sums, 2 inputs, 1 weight
constexpr int SHORT = TALL / 2;                 // channels in a tile of four
typedef void (*Tile)(const Product&, const Part&, const vec*, const float*, const float*, loose_vec*);
template <int N, int... R>
static Tile tile_of(int rows, std::integer_sequence<int, R...>) {
  static constexpr Tile table[] = {tile<R + 1, N>...};
  return table[rows - 1];
}

static void convolve(const Product& p, const vec* x, const float* w, const float* bias, loose_vec* out) {
  const int rows = p.height + 2 * p.border - p.kernel + 1, columns = p.width + 2 * p.border - p.kernel + 1;
  const int parts = (p.out + TALL - 1) / TALL;
  // so many input channels at a time that what one tile sees of them stays in the first-level cache
  const int most = std::max(1, NEAR / (p.kernel * p.kernel * 2 * BYTES)), chunks = (p.in + most - 1) / most;
  for (int job = 0; job < chunks * parts; job++) {
    const int chunk = job / parts, part = job % parts, in = p.in * chunk / chunks;
    const int first = p.out * part / parts, count = p.out * (part + 1) / parts - first;
    const Tile four = count <= SHORT ? tile_of<4>(count, std::make_integer_sequence<int, SHORT>()) : nullptr,
               two = tile_of<2>(count, std::make_integer_sequence<int, TALL>()),
               one = tile_of<1>(count, std::make_integer_sequence<int, TALL>());
    const float *weights = w + first * p.by_out + in * p.by_in, *biases = bias ? bias + first : nullptr;
    Part t{p.in * (chunk + 1) / chunks - in, 0, 0, 0, 0, chunk > 0};
    for (int h = 0; h < rows; h++) {
      t.r0 = std::max(0, p.border - h), t.r1 = std::min(p.kernel, p.height + p.border - h);
      for (int left = 0, right; left < columns; left = right) {  // columns that see the same part of the kernel
        t.s0 = std::max(0, p.border - left), t.s1 = std::min(p.kernel, p.width + p.border - left);
        right = t.s1 - t.s0 == p.kernel ? p.width + p.border - p.kernel + 1 : left + 1;
        const vec* from = x + in * p.x_plane + ((h - p.border) * (long)p.width - p.border) * p.n;
        loose_vec* to = out + first * p.out_plane + (long)h * columns * p.n;
        const long end = right * p.n;
        for (long v = left * p.n, wide; v < end; v += wide) {
          wide = four && v + 4 <= end ? 4 : v + 2 <= end ? 2 : 1;
          (wide == 4 ? four : wide == 2 ? two : one)(p, t, from + v, weights, biases, to + v);
        }
      }
    }
  }
}

// Gradient of one kernel row of R output channels and one input channel: sums over the image and the batch.
// x: the plane's first row under this kernel row, `stride` vectors a row; d: gradients of the output, planes `plane`.
// With `squares` (one block a pixel) their squares are added there instead, each sample's apart. N: vectors a pixel if
// that is known here, else 0; what is known takes no registers for addresses (a quarter of the time).
template <int K, int R, int N>
static void kernel_row(const vec* x, long stride, const vec* d, long plane, int rows, long length, long vectors,
                       float* to, long by_out, vec* squares) {
  const long n = N ? N : vectors;
  vec sums[SPLIT][R][K]{};
  for (int first = 0, last; first < rows; first = last) {
    last = SPLIT == 1 ? rows : first + 1;  // so few at a time that they are still near for the next part of a block
    for (int g = 0; g < SPLIT && g < n; g++) {
      vec a[R][K];
      for (int o = 0; o < R; o++)
        for (int s = 0; s < K; s++) a[o][s] = sums[g][o][s];
      auto add = [&](const vec* from, const vec* slopes) {
        vec b[K];
#pragma GCC unroll 8
        for (int s = 0; s < K; s++) b[s] = from[s * n];
#pragma GCC unroll 8
        for (int o = 0; o < R; o++) {
          vec t = slopes[o * plane];
#pragma GCC unroll 8
          for (int s = 0; s < K; s++) a[o][s] = fma(t, b[s], a[o][s]);
        }
      };
      for (int h = first; h < last; h++) {
        const vec *from = x + h * stride, *slopes = d + h * length;
        if (n % SPLIT == 0)
          for (long v = g; v < length; v += SPLIT) add(from + v, slopes + v);
        else
          for (long pixel = 0; pixel < length; pixel += n)
            for (long v = pixel + g; v < pixel + n; v += SPLIT) add(from + v, slopes + v);
      }
      for (int o = 0; o < R; o++)
        for (int s = 0; s < K; s++) sums[g][o][s] = a[o][s];
    }
  }
  for (int o = 0; o < R; o++)
    for (int s = 0; s < K; s++) {
      float total = 0;
      for (int g = 0; g < SPLIT && g < n; g++) {
        const vec a = sums[g][o][s];
        if (squares)
          squares[g] = fma(a, a, squares[g]);
        else
          total = sum(a, total);
      }
      if (!squares) to[o * by_out + s] = total;
    }
}

constexpr int rows_for(int kernel) { return std::clamp((REGISTERS - 1 - kernel) / kernel, 1, 6); }

typedef void (*KernelRow)(const vec*, long, const vec*, long, int, long, long, float*, long, vec*);
template <int K, int... R>
static KernelRow kernel_row_of(int channels, long n, std::integer_sequence<int, R...>) {
  static constexpr KernelRow table[][sizeof...(R)] = {
      {kernel_row<K, R + 1, 0>...}, {kernel_row<K, R + 1, 1>...}, {kernel_row<K, R + 1, 2>...},
      {kernel_row<K, R + 1, 2 * SPLIT>...}};
  return table[n <= 2 ? n : n == 2 * SPLIT ? 3 : 0][channels - 1];
}

// d_weight[o][i][r][s] of a convolution; padded: room for one plane of x with its border.
template <int K>
static void weight_gradient(const Block& b, long n, const vec* x, const vec* d, vec* padded, vec* squares) {
  const long length = b.columns() * n, plane = b.rows() * length, by_out = (long)b.channels * K * K;
  const long stride = (b.width + 2 * b.border) * n, inner = b.width * n;
  constexpr int R = rows_for(K);
  const int parts = (b.out + R - 1) / R;  // of the channels; so many at a time that their gradients stay in the cache:
  const int group = std::max<long>(1, MIDDLE / (R * plane * sizeof(vec)));
  if (b.border) std::memset((void*)padded, 0, (b.height + 2 * b.border) * stride * sizeof(vec));
  for (int first = 0; first < parts; first += group)
    for (int i = 0; i < b.channels; i++) {
      const vec* from = x + i * b.height * inner;
      if (b.border) {
        for (int h = 0; h < b.height; h++)
          std::memcpy((void*)(padded + (h + b.border) * stride + b.border * n), from + h * inner, inner * sizeof(vec));
        from = padded;
      }
      for (int part = first; part < std::min(parts, first + group); part++) {
        const int o = b.out * part / parts, channels = b.out * (part + 1) / parts - o;
        const KernelRow row = kernel_row_of<K>(channels, n, std::make_integer_sequence<int, R>());
        float* to = b.d_weight + (o * b.channels + i) * K * K;
        for (int r = 0; r < K; r++)
          row(from + r * stride, stride, d + o * plane, plane, b.rows(), length, n, to + r * K, by_out, squares);
      }
    }
}

// Rows become columns: halves change places, then halves of halves, and so on.
template <int HALF = LANES / 2>
static void turn(vec (&block)[LANES]) {
  if constexpr (HALF > 0) {
#if defined(__clang__)
    for (int r = 0; r < LANES; r++)
      for (int k = 0; k < LANES; k++)
        if (!(r & HALF) && (k & HALF)) {
          const float kept = block[r][k];
          block[r][k] = block[r + HALF][k - HALF], block[r + HALF][k - HALF] = kept;
        }
#else
    ivec upper, lower;
    for (int k = 0; k < LANES; k++) upper[k] = k & HALF ? LANES + k - HALF : k, lower[k] = upper[k] + HALF;
    for (int r = 0; r < LANES; r++)
      if (!(r & HALF)) {
        const vec a = block[r], b = block[r + HALF];
        block[r] = __builtin_shuffle(a, b, upper), block[r + HALF] = __builtin_shuffle(a, b, lower);
      }
#endif
    turn<HALF / 2>(block);
  }
}

static inline void copy(const float* from, long count, float* to) {
  if (count == LANES)
    *(loose_vec*)to = *(const loose_vec*)from;
  else
    std::memcpy(to, from, count * sizeof(float));
}

// From [rows][count] to [count][size], where rows <= size and the rest is zeros.
static void transpose(const float* from, long stride, int rows, long count, float* to, long size) {
  vec block[LANES];
  for (long r = 0; r < size; r += LANES) {  // so many rows at a time: of more the CPU fetches less ahead
    const long high = std::min<long>(LANES, size - r);
    for (long i = 0; i < count; i += LANES) {
      const long wide = std::min<long>(LANES, count - i);
      for (long k = 0; k < LANES; k++) {
        block[k] = vec{};
        if (r + k < rows) copy(from + (r + k) * stride + i, wide, (float*)&block[k]);
      }
      turn(block);
      for (long j = 0; j < wide; j++) copy((const float*)&block[j], high, to + (i + j) * size + r);
    }
  }
}

// Inputs ------------------------------------------------------------------------------------------------------------

struct Images {  // the same fields, in this order, in network.py; either x or the others
  const float* x;        // [batch, channels, height, width]
  const uint8_t* bytes;  // [count, height, width, channels]
  int64_t count, channels;
  const int64_t* rows;  // [batch], which of them
  const float *scale, *shift;  // by channel: an input is a byte times scale, plus shift

  bool sound(int batch) const {
    for (int s = 0; s < batch && !x; s++)
      if (rows[s] < 0 || rows[s] >= count) return false;
    return true;
  }
};

// `numbers` an image to [channel][pixel][size], where batch <= size and the rest is zeros. The channels are the images'
// own: a linear layer, if it is the first, sees 1x1 with as many channels as there are numbers. As in PyTorch the product
// is rounded before the sum: the numbers are the same.
static void look_up(const Images& m, long numbers, int batch, vec* to, long size) {
  const long pixels = numbers / m.channels, n = size / LANES;
  for (long v = 0; v < n; v++) {
    const uint8_t* from[LANES];
    ivec real{};
    for (int j = 0; j < LANES; j++) {
      const long s = v * LANES + j;
      real[j] = s < batch ? -1 : 0;
      from[j] = m.bytes + m.rows[s < batch ? s : 0] * numbers;
    }
    for (long k = 0, pixel = 0, c = 0; k < numbers; k += 4) {  // four bytes of every sample at a time
      ivec words{};
      const long wide = std::min<long>(4, numbers - k);
      for (int j = 0; j < LANES; j++) {
        int32_t word = 0;
        if (wide == 4)
          std::memcpy(&word, from[j] + k, 4);
        else
          std::memcpy(&word, from[j] + k, wide);
        words[j] = word;
      }
      for (long i = 0; i < wide; i++, words >>= 8) {
        const vec product = __builtin_convertvector(words & 255, vec) * m.scale[c];
        const vec input = product + m.shift[c];
        to[(c * pixels + pixel) * n + v] = real ? input : vec{};
        if (++c == m.channels) c = 0, pixel++;
      }
    }
  }
}

#include "behind_pooling.hpp"

// Memory ------------------------------------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(place, bytes) ASAN_POISON_MEMORY_REGION(place, bytes)
#define ALLOW(place, bytes) ASAN_UNPOISON_MEMORY_REGION(place, bytes)
#else
#define FORBID(place, bytes)
#define ALLOW(place, bytes)
#endif

struct Buffers {  // of one block
  vec *z, *out;   // before and after norm, ReLU and pooling; by the batch's statistics, z is normalised in place
  ivec* chosen;   // which of a window's four numbers is the largest, -1 where ReLU made it 0
  float* spread;  // 1 / standard deviation, by channel
};

struct Work {  // hands out an array's parts; with a null array it only counts
  char* start;
  int64_t used = 0;
  template <class T>
  T* take(long count) {
    T* found = (T*)(start + used);
    const int64_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    used += bytes + 64;
    if (start) { FORBID(start + used - 64, 64); }
    return found;
  }
};

struct Plan {  // where everything lies in the array `work`
  static constexpr int MOST = 64;
  long n;
  int64_t bytes;
  vec *x, *d, *dz, *padded, *mask;
  float* scores;  // [batch, numbers], of `entropy_step`
  char* room;     // of `behind_pooling`
  Buffers of[MOST];

  Plan(const Block* blocks, int count, int batch, void* work) {
    if (work) { ALLOW(work, Plan(blocks, count, batch, nullptr).bytes); }  // what was made for another plan
    Work w{(char*)(((uintptr_t)work + 63) / 64 * 64)};
    n = (batch + LANES - 1) / LANES;
    mask = w.take<vec>(n);
    x = w.take<vec>((long)blocks[0].channels * blocks[0].height * blocks[0].width * n);
    long most_z = 0, most_out = 0, most_plane = 0, most_room = 0;
    for (int k = 0; k < count; k++) {
      const Block& b = blocks[k];
      const long pixels = b.out * b.pixels(), pooled = b.out * b.pooled();
      of[k].z = w.take<vec>(pixels * n);
      of[k].out = b.in_place() ? of[k].z : w.take<vec>(pooled * n);
      of[k].chosen = b.pool ? w.take<ivec>(pooled * n) : nullptr;
      of[k].spread = b.norm ? w.take<float>(b.out) : nullptr;
      most_z = std::max(most_z, pixels * n);
      most_out = std::max(most_out, std::max(pooled, (long)b.channels * b.height * b.width) * n);
      most_plane = std::max(most_plane, (long)(b.height + 2 * b.border) * (b.width + 2 * b.border) * n);
      if (Sparse::fits(b)) most_room = std::max(most_room, (long)Sparse(b, batch, n * LANES, nullptr).used);
      if (b.pixels() == 1) {  // linear: inputs turned, and gradients whose rows are whole vectors
        const long wide = (b.channels + LANES - 1) / LANES;
        most_plane = std::max(most_plane, (batch + (b.channels % LANES ? b.out : 0)) * wide);
      }
    }
    d = w.take<vec>(most_out);
    dz = w.take<vec>(most_z);
    padded = w.take<vec>(most_plane);
    scores = w.take<float>(batch * blocks[count - 1].out * blocks[count - 1].pooled());
    room = w.take<char>(most_room);
    bytes = w.used + 64;
  }
};

// Norm, ReLU and pooling --------------------------------------------------------------------------------------------

// Scaled, shifted, cut at `floor` and pooled: two rows become one. N as in `kernel_row`.
template <int N>
static void pool_rows(const Block& b, const vec* upper, const vec* lower, long vectors, float scale, float shift,
                      vec floor, vec* out, ivec* chosen) {
  const long n = N ? N : vectors;
  const vec by = all(scale), plus = all(shift);
  for (int w = 0; w < b.columns() / 2; w++, upper += 2 * n, lower += 2 * n)
    for (long k = 0; k < n; k++) {
      vec best = fma(upper[k], by, plus);
      ivec which{};
      const vec others[] = {fma(upper[n + k], by, plus), fma(lower[k], by, plus), fma(lower[n + k], by, plus)};
#pragma GCC unroll 3
      for (int i = 0; i < 3; i++) {
        const ivec larger = others[i] > best;  // of equal numbers the first is chosen
        best = larger ? others[i] : best;
        which = larger ? ivec{} + (i + 1) : which;
      }
      *chosen++ = best > floor ? which : ivec{} - 1;
      *out++ = floor > best ? floor : best;
    }
}

// The batch's statistics of a channel z, which renew the running ones; returns its mean, writes its spread.
template <int N>
static float batch_statistics(const Block& b, int c, int batch, const Plan& p, const vec* z, float* spread) {
  const long n = N ? N : p.n, width = b.columns() * n;
  const double count = (double)b.pixels() * batch;
  double total = 0, square = 0;
  for (int h = 0; h < b.rows(); h++) {
    vec s[SPLIT]{};
    for (long v = h * width; v < (h + 1) * width; v += n)
      for (int g = 0; g < SPLIT; g++)
        for (long k = g; k < n; k += SPLIT) s[g] = fma(z[v + k], p.mask[k], s[g]);
    total += sum_of_block(s);
  }
  const float mean = (float)(total / count);
  for (int h = 0; h < b.rows(); h++) {
    vec s[SPLIT]{};
    for (long v = h * width; v < (h + 1) * width; v += n)
      for (int g = 0; g < SPLIT; g++)
        for (long k = g; k < n; k += SPLIT) {
          const vec away = (z[v + k] - mean) * p.mask[k];
          s[g] = fma(away, away, s[g]);
        }
    square += sum_of_block(s);
  }
  const float unbiased = count > 1 ? (float)(square / (count - 1)) : b.var[c];
  b.new_mean[c] = std::fma(b.momentum, mean, (1 - b.momentum) * b.mean[c]);
  b.new_var[c] = std::fma(b.momentum, unbiased, (1 - b.momentum) * b.var[c]);
  *spread = (float)(1 / std::sqrt(square / count + b.eps));
  return mean;
}

// out, and where pooling follows chosen, from z, for one channel. Row by row: what was just written is near.
template <int N>
static void finish_channel(const Block& b, int c, int batch, const Plan& p, const Buffers& u) {
  const long n = N ? N : p.n, width = b.columns() * n, size = b.rows() * width;
  vec* z = u.z + c * size;
  float scale = 1, shift = 0, mean = 0;
  if (b.norm == 1) {
    mean = batch_statistics<N>(b, c, batch, p, z, u.spread + c);
    scale = b.scale[c], shift = b.shift[c];
  } else if (b.norm == 2) {
    u.spread[c] = 1 / std::sqrt(b.var[c] + b.eps);
    scale = b.scale[c] * u.spread[c], shift = std::fma(-b.mean[c], scale, b.shift[c]);
  }
  const vec floor = all(b.relu ? 0 : -std::numeric_limits<float>::infinity());
  for (int h = 0; h < b.rows(); h++) {
    vec* row = z + h * width;
    if (b.norm == 1)
      for (long v = 0; v < width; v++) row[v] = (row[v] - mean) * u.spread[c];
    if (b.pool && h % 2) {
      const long first = c * b.pooled() * n + h / 2 * (b.columns() / 2) * n;
      pool_rows<N>(b, row - width, row, n, scale, shift, floor, u.out + first, u.chosen + first);
    }
    vec* out = u.out + c * size + h * width;
    for (long v = 0; v < width && !b.pool; v++) {
      const vec y = fma(row[v], all(scale), all(shift));
      out[v] = floor > y ? floor : y;  // so that NaN stays NaN
    }
  }
}

// Row h of the gradient before ReLU and pooling, for one channel, from d, the gradient after them.
template <int N>
static void row_before_pooling(const Block& b, int h, const vec* d, const ivec* chosen, const vec* out, long vectors,
                               vec* row) {
  const long n = N ? N : vectors, width = b.columns() * n, first = h * width;
  for (long v = 0; v < width && !b.pool; v++)
    row[v] = b.relu ? (out[first + v] > 0 ? d[first + v] : vec{}) : d[first + v];
  if (!b.pool) return;
  const long windows = h / 2 < b.rows() / 2 ? b.columns() / 2 : 0;  // that this row is in
  for (long w = 0; w < windows; w++)
    for (long k = 0; k < n; k++) {
      const vec g = d[(h / 2 * windows + w) * n + k];
      const ivec which = chosen[(h / 2 * windows + w) * n + k] - h % 2 * 2;
      row[2 * w * n + k] = which == 0 ? g : vec{}, row[2 * w * n + n + k] = which == 1 ? g : vec{};
    }
  for (long v = 2 * windows * n; v < width; v++) row[v] = vec{};
}

// dz: gradient before norm, ReLU and pooling, from d, the gradient after them, for one channel.
template <int N>
static void finish_channel_backwards(const Block& b, int c, int batch, const Plan& p, const Buffers& u, vec* squares) {
  const long n = N ? N : p.n, width = b.columns() * n, size = b.rows() * width, given = c * b.pooled() * n;
  const vec* z = u.z + c * size;
  vec* dz = p.dz + c * size;
  double by_shift = 0, by_scale = 0, by_bias = 0;
  for (int h = 0; h < b.rows(); h++) {
    vec *row = dz + h * width, s[SPLIT]{}, t[SPLIT]{};
    row_before_pooling<N>(b, h, p.d + given, u.chosen + given, u.out + given, n, row);
    if (b.norm != 1) continue;
    for (long v = 0; v < width; v += n)
      for (int g = 0; g < SPLIT; g++)
        for (long k = v + g; k < v + n; k += SPLIT) {
          s[g] += row[k];
          t[g] = fma(row[k], z[h * width + k], t[g]);
        }
    by_shift += sum_of_block(s), by_scale += sum_of_block(t);
  }
  if (b.norm == 1 && b.d_shift) b.d_shift[c] = (float)by_shift;
  if (b.norm == 1 && b.d_scale) b.d_scale[c] = (float)by_scale;
  const double count = (double)b.pixels() * batch;
  const float mean = (float)(by_shift / count), slope = (float)(by_scale / count);
  const float factor = b.norm ? b.scale[c] * u.spread[c] : 1;
  vec each[SPLIT]{};
  for (int h = 0; h < b.rows(); h++) {
    vec *row = dz + h * width, s[SPLIT]{};
    for (long v = 0; v < width && b.norm == 1; v += n)
      for (long k = 0; k < n; k++)
        row[v + k] = factor * fma(z[h * width + v + k], all(-slope), row[v + k] - mean) * p.mask[k];
    for (long v = 0; v < width && b.norm == 2; v++) row[v] *= factor;
    for (long v = 0; v < width && b.d_bias; v += n)
      for (int g = 0; g < SPLIT; g++)
        for (long k = v + g; k < v + n; k += SPLIT) s[g] += row[k];
    by_bias += sum_of_block(s);
    for (int g = 0; g < SPLIT; g++) each[g] += s[g];
  }
  if (b.d_bias && squares)
    for (int g = 0; g < n; g++) squares[g] = fma(each[g], each[g], squares[g]);
  else if (b.d_bias)
    b.d_bias[c] = (float)by_bias;
}

static void linear_weight_gradient(const Block& b, int batch, const Plan& p, const vec* x) {
  const long wide = (b.channels + LANES - 1) / LANES;  // d_weight [out, in] = dz [out, batch] times x' [batch, in]
  transpose((const float*)x, p.n * LANES, b.channels, batch, (float*)p.padded, wide * LANES);
  const Product q{b.out, batch, 1, 1, 1, 0, wide, p.n * LANES, 1, 0, 0, wide, wide};
  const bool whole = b.channels % LANES == 0;
  vec* rows = p.padded + batch * wide;
  convolve(q, p.padded, (const float*)p.dz, nullptr, whole ? (loose_vec*)b.d_weight : (loose_vec*)rows);
  for (int o = 0; o < b.out && !whole; o++)
    std::memcpy(b.d_weight + (long)o * b.channels, rows + o * wide, b.channels * sizeof(float));
}

// A sample's gradient is dz x': its square is that of dz times that of x.
static void linear_squares(const Block& b, const Plan& p, const vec* x, vec* squares) {
  for (long g = 0; g < p.n; g++) {
    vec of_x{}, of_dz{};
    for (long i = g; i < b.channels * p.n; i += p.n) of_x = fma(x[i], x[i], of_x);
    for (long o = g; o < b.out * p.n; o += p.n) of_dz = fma(p.dz[o], p.dz[o], of_dz);
    squares[g] = fma(of_x, of_dz, squares[g]);
  }
}

// What Python calls -------------------------------------------------------------------------------------------------

extern "C" int64_t work_bytes(const Block* blocks, int count, int batch) {
  return Plan(blocks, count, batch, nullptr).bytes;
}

// images -> out [batch, numbers]; `work` keeps what `backward` needs. False, and nothing done, for rows that are none.
static bool forward(const Block* blocks, int count, int batch, const Images* images, float* out, void* work) {
  if (!images->sound(batch)) return false;
  const Plan p(blocks, count, batch, work);
  for (long lane = 0; lane < p.n * LANES; lane++) ((float*)p.mask)[lane] = lane < batch;
  const long numbers = (long)blocks[0].channels * blocks[0].height * blocks[0].width;
  if (images->x)
    transpose(images->x, numbers, batch, numbers, (float*)p.x, p.n * LANES);
  else
    look_up(*images, numbers, batch, p.x, p.n * LANES);
  const auto finish = p.n == 1           ? finish_channel<1>
                      : p.n == 2         ? finish_channel<2>
                      : p.n == 2 * SPLIT ? finish_channel<2 * SPLIT>
                                         : finish_channel<0>;
  const vec* from = p.x;
  for (int k = 0; k < count; k++) {
    const Block& b = blocks[k];
    const long side = b.kernel, area = side * side, n = p.n;
    const Product q{b.out, b.channels, b.height, b.width, b.kernel, b.border, n, b.channels * area, area, side, 1,
                    (long)b.height * b.width * n, b.pixels() * n};
    convolve(q, from, b.weight, b.bias, (loose_vec*)p.of[k].z);
    for (int c = 0; c < b.out; c++) finish(b, c, batch, p, p.of[k]);
    from = p.of[k].out;
  }
  const Block& last = blocks[count - 1];
  const long made = last.out * last.pooled();
  for (int s = 0; s < batch; s++)
    for (long i = 0; i < made; i++) out[s * made + i] = ((const float*)from)[i * p.n * LANES + s];
  return true;
}

// The same of any number of images, `most` at a time, for which `work` is made.
extern "C" bool forward_in_parts(const Block* blocks, int count, int batch, const Images* images, float* out,
                                 void* work, int most) {
  const Block &first = blocks[0], &last = blocks[count - 1];
  const long numbers = (long)first.channels * first.height * first.width, made = last.out * last.pooled();
  if (!images->sound(batch)) return false;
  for (int s = 0; s < batch; s += most) {
    Images part = *images;
    if (part.x)
      part.x += s * numbers;
    else
      part.rows += s;
    forward(blocks, count, std::min(most, batch - s), &part, out + s * made, work);
  }
  return true;
}

// Gradients of everything that is asked for, from that of the output, d_out [batch, numbers]; after `forward`. With
// `out` [batch], for at most one block of samples and no batch norm, only the square of every sample's own gradient.
extern "C" void backward(const Block* blocks, int count, int batch, const float* d_out, void* work, float* out) {
  const Plan p(blocks, count, batch, work);
  vec total[SPLIT]{}, *squares = out ? total : nullptr;
  const Block& last = blocks[count - 1];
  const long n = p.n, made = last.out * last.pooled();
  transpose(d_out, made, batch, made, (float*)p.d, n * LANES);
  const auto finish = n == 1           ? finish_channel_backwards<1>
                      : n == 2         ? finish_channel_backwards<2>
                      : n == 2 * SPLIT ? finish_channel_backwards<2 * SPLIT>
                                       : finish_channel_backwards<0>;
  int lowest = 0;
  while (!blocks[lowest].trained()) lowest++;
  for (int k = count - 1; k >= lowest; k--) {
    const Block& b = blocks[k];
    const vec* x = k ? p.of[k - 1].out : p.x;
    if (Sparse::fits(b) && !squares) {
      behind_pooling(b, batch, n * LANES, (const float*)x, p.of[k].chosen, (float*)p.d, k > lowest, p.room);
      continue;
    }
    for (int c = 0; c < b.out; c++) finish(b, c, batch, p, p.of[k], squares);
    if (b.d_weight && b.kernel == 1 && b.height * b.width == 1) {
      if (squares)
        linear_squares(b, p, x, squares);
      else
        linear_weight_gradient(b, batch, p, x);
    } else if (b.d_weight) {
      typedef void (*Gradient)(const Block&, long, const vec*, const vec*, vec*, vec*);
      static constexpr Gradient of_side[] = {weight_gradient<1>, weight_gradient<2>, weight_gradient<3>,
                                             weight_gradient<4>, weight_gradient<5>, weight_gradient<6>,
                                             weight_gradient<7>};
      of_side[b.kernel - 1](b, n, x, p.dz, p.padded, squares);
    }
    if (k == lowest) break;
    const long side = b.kernel, area = side * side;
    const Product q{b.channels, b.out, b.rows(), b.columns(), b.kernel, b.kernel - 1 - b.border, n, area,
                    b.channels * area, -side, -1, b.pixels() * n, (long)b.height * b.width * n};
    convolve(q, p.dz, b.weight + area - 1, nullptr, (loose_vec*)p.d);
  }
  if (out) std::memcpy(out, total, batch * sizeof(float));
}

// Gradient of the mean cross-entropy with respect to the scores, both [batch, classes] and maybe the same array; labels
// [batch].
extern "C" void entropy_slope(int batch, int classes, const float* scores, const int64_t* labels, float* slopes) {
  for (int s = 0; s < batch; s++, scores += classes, slopes += classes) {
    const float largest = *std::max_element(scores, scores + classes);
    float total = 0;
    for (int c = 0; c < classes; c++) total += slopes[c] = (float)std::exp((double)scores[c] - largest);
    for (int c = 0; c < classes; c++) slopes[c] = (slopes[c] / total - (c == labels[s])) / batch;
  }
}

static void descend(const float* from, long count, float rate, float* slopes) {  // slopes become the new weights
  for (long i = 0; slopes && i < count; i++) slopes[i] = std::fma(-rate, slopes[i], from[i]);
}

// A step of gradient descent on the mean cross-entropy: where `backward` writes gradients, the parameters' new values
// are written. images and what is returned as in `forward`, labels [batch].
extern "C" bool entropy_step(const Block* blocks, int count, int batch, const Images* images, const int64_t* labels,
                             float rate, void* work) {
  float* scores = Plan(blocks, count, batch, work).scores;
  if (!forward(blocks, count, batch, images, scores, work)) return false;
  entropy_slope(batch, blocks[count - 1].out, scores, labels, scores);
  backward(blocks, count, batch, scores, work, nullptr);
  for (const Block* b = blocks; b < blocks + count; b++) {
    descend(b->weight, (long)b->out * b->channels * b->kernel * b->kernel, rate, b->d_weight);
    descend(b->bias, b->out, rate, b->d_bias);
    descend(b->scale, b->out, rate, b->d_scale);
    descend(b->shift, b->out, rate, b->d_shift);
  }
  return true;
}
