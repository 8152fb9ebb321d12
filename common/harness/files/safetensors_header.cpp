#pragma GCC optimize("O1") // as in command_line.cpp

#include "common/harness/files/safetensors_header.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/attention.hpp"
#include "common/harness/files/text.hpp"

namespace flash {
namespace {

using Json = nlohmann::json;

/// Receives the JSON piece by piece. A document tree would be shorter to read from, but of two
/// equal names it keeps the last one in silence, and a hostile header of 100 MB would grow to
/// gigabytes in it.
class HeaderParser final : public Json::json_sax_t {
  public:
    SafetensorsHeader header;

    bool start_object(size_t) override {
        if (where_ == Where::outside) {
            where_ = Where::names;
        } else if (where_ == Where::names) {
            where_ = name_ == "__metadata__" ? Where::metadata : Where::tensor;
        } else {
            unexpected("an object");
        }
        return true;
    }

    bool key(std::string& key) override {
        key_ = key;
        if (where_ == Where::names) {
            name_ = key;
            first_time(names_);
        } else if (where_ == Where::metadata) {
            first_time(keys_);
        } else {
            if (key != "dtype" && key != "shape" && key != "data_offsets") {
                throw Error("tensor " + in_quotes(name_) + " has an unknown field " +
                            in_quotes(key));
            }
            first_time(keys_);
        }
        return true;
    }

    bool end_object() override {
        if (where_ == Where::tensor) {
            end_tensor();
        }
        where_ = where_ == Where::names ? Where::outside : Where::names;
        keys_.clear();
        return true;
    }

    bool string(std::string& text) override {
        if (where_ == Where::metadata) {
            header.metadata[key_] = text;
        } else if (where_ == Where::tensor && key_ == "dtype") {
            tensor_.dtype = text;
        } else {
            unexpected("a text");
        }
        return true;
    }

    bool start_array(size_t) override {
        if (where_ != Where::tensor || key_ == "dtype") {
            unexpected("a list");
        }
        where_ = key_ == "shape" ? Where::shape : Where::offsets;
        return true;
    }

    bool number_unsigned(uint64_t number) override {
        if (where_ == Where::shape && number <= uint64_t{std::numeric_limits<int64_t>::max()}) {
            tensor_.shape.push_back(static_cast<int64_t>(number));
        } else if (where_ == Where::offsets) {
            offsets_.push_back(number);
        } else {
            unexpected("the number " + std::to_string(number));
        }
        return true;
    }

    bool end_array() override {
        where_ = Where::tensor;
        return true;
    }

    bool number_integer(int64_t) override { unexpected("a negative number"); }
    bool number_float(double, const std::string&) override {
        unexpected("a number that is not whole, or too large,");
    }
    bool boolean(bool) override { unexpected("true or false"); }
    bool null() override { unexpected("null"); }
    bool binary(Json::binary_t&) override { unexpected("binary data"); }

    bool parse_error(size_t position, const std::string&, const Json::exception&) override {
        throw Error("the header is not valid JSON at its byte " + std::to_string(position));
    }

  private:
    enum class Where { outside, names, metadata, tensor, shape, offsets };

    [[noreturn]] void unexpected(const std::string& what) const {
        const std::string place = where_ == Where::outside ? "as a whole"
                                  : where_ == Where::names ? "for " + in_quotes(name_)
                                  : where_ == Where::metadata
                                      ? "for " + in_quotes(key_) + " in __metadata__"
                                      : "for the " + key_ + " of tensor " + in_quotes(name_);
        throw Error("the header has " + what + " " + place + ", which the format does not allow");
    }

    void first_time(std::set<std::string>& seen) const {
        if (!seen.insert(key_).second) {
            throw Error("the header has " + in_quotes(key_) + " twice" +
                        (where_ == Where::names ? "" : " in " + in_quotes(name_)));
        }
    }

    void end_tensor() {
        if (keys_.size() != 3) {
            throw Error("tensor " + in_quotes(name_) +
                        " lacks one of dtype, shape and data_offsets");
        }
        if (offsets_.size() != 2) {
            throw Error("tensor " + in_quotes(name_) +
                        " must have two data_offsets, begin and end");
        }
        tensor_.begin = offsets_[0];
        tensor_.end = offsets_[1];
        header.tensors[name_] = std::exchange(tensor_, {});
        offsets_.clear();
    }

    Where where_ = Where::outside;
    std::string name_;            // the last key of the outermost object
    std::string key_;             // the last key of any object
    std::set<std::string> names_; // keys of the outermost object so far
    std::set<std::string> keys_;  // and of the object inside it
    TensorInfo tensor_;           // the tensor that is being read
    std::vector<uint64_t> offsets_;
};

} // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json) {
    if (!json.starts_with('{')) {
        throw Error("the header does not begin with '{'");
    }
    if (json.find('\0') != std::string_view::npos) { // the JSON library would take it for the end
        throw Error("the header contains a zero byte");
    }
    HeaderParser parser;
    Json::sax_parse(json, &parser);
    return std::move(parser.header);
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
    Json json = Json::object();
    if (!header.metadata.empty()) {
        json["__metadata__"] = header.metadata;
    }
    for (const auto& [name, info] : header.tensors) {
        json[name] = {
            {"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {info.begin, info.end}}};
    }
    return json.dump();
}

} // namespace flash
