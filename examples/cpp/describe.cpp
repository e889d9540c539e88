// Describe keypoints of an image with onnxruntime alone: describe GRAPH IMAGE.pgm KEYPOINTS.txt DESCRIPTORS.npy
//
// GRAPH is written by: doap export doap-tiny-128 --graph image -o GRAPH
// KEYPOINTS.txt has one keypoint per line: x y scale angle, in pixels and in degrees clockwise in the image; (0, 0) is
// the centre of the top left pixel. Of a cv::KeyPoint, scale is size / 2. DESCRIPTORS.npy has one row per keypoint.
#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

std::vector<uint8_t> read_pgm(const std::string& path, int64_t (&shape)[2]) {  // binary, 8 bit, without comments
    std::ifstream file(path, std::ios::binary);
    std::string magic;
    int maximum = 0;
    file >> magic >> shape[1] >> shape[0] >> maximum;
    if (!file || magic != "P5" || maximum != 255 || shape[0] < 1 || shape[1] < 1)
        throw std::runtime_error(path + ": is not a binary PGM image with 8 bit");
    std::vector<uint8_t> pixels(shape[0] * shape[1]);
    file.ignore(1).read(reinterpret_cast<char*>(pixels.data()), pixels.size());
    return file ? pixels : throw std::runtime_error(path + ": is truncated");
}

std::vector<float> read_frames(const std::string& path) {  // 2x3 matrices [A | c], row by row
    std::ifstream file(path);
    const std::vector<double> numbers{std::istream_iterator<double>(file), {}};
    if (!file.eof() || numbers.size() % 4) throw std::runtime_error(path + ": is not a text file of x y scale angle");
    const double degree = std::acos(-1.0) / 180;
    std::vector<float> frames;
    for (size_t i = 0; i < numbers.size(); i += 4) {
        const double x = numbers[i], y = numbers[i + 1], scale = numbers[i + 2], angle = numbers[i + 3] * degree;
        const double c = scale * std::cos(angle), s = scale * std::sin(angle);
        for (double value : {c, -s, x, s, c, y}) frames.push_back(static_cast<float>(value));
    }
    return frames;
}

void write_npy(const std::string& path, const Ort::Value& tensor) {
    const auto info = tensor.GetTensorTypeAndShapeInfo();
    const auto shape = info.GetShape();
    const bool real = info.GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    std::string header = std::string("{'descr': '") + (real ? "<f4" : "|u1") + "', 'fortran_order': False, 'shape': (" +
        std::to_string(shape[0]) + ", " + std::to_string(shape[1]) + ")}";
    header.append(117 - header.size(), ' ') += '\n';  // 128 bytes with the 10 of magic, version and length
    std::ofstream file(path, std::ios::binary);
    file.write("\x93NUMPY\x01\x00\x76\x00", 10) << header;
    file.write(static_cast<const char*>(tensor.GetTensorRawData()), info.GetElementCount() * (real ? 4 : 1));
    if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

int main(int argc, char** argv) try {
    if (argc != 5) throw std::runtime_error("usage: describe GRAPH IMAGE.pgm KEYPOINTS.txt DESCRIPTORS.npy");
    int64_t image_shape[2];
    std::vector<uint8_t> image = read_pgm(argv[2], image_shape);
    std::vector<float> frames = read_frames(argv[3]);
    const int64_t frames_shape[] = {static_cast<int64_t>(frames.size() / 6), 2, 3};

    Ort::Env env;
    Ort::Session session(env, argv[1], Ort::SessionOptions());
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    const Ort::Value inputs[] = {
        Ort::Value::CreateTensor(memory, image.data(), image.size(), image_shape, 2),
        Ort::Value::CreateTensor(memory, frames.data(), frames.size(), frames_shape, 3)};
    const char* input_names[] = {"image", "frames"};
    const char* output_names[] = {"descriptors"};
    const auto outputs = session.Run(Ort::RunOptions(), input_names, inputs, 2, output_names, 1);
    write_npy(argv[4], outputs[0]);
    std::cout << frames_shape[0] << " keypoints described\n";
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
