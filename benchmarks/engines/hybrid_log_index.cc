/* SPDX-License-Identifier: BSD-3-Clause */
#include "hybrid_log_index.h"

namespace engine::hybrid
{

Index::Index(uint64_t file_bytes) : used_((file_bytes >> LARGEST_SHIFT) / 64 + 1)
{
    while (file_bytes > uint64_t(1) << (LARGEST_SHIFT + 9 * levels_))
        levels_++;
}

Index::~Index()
{
    remove(skip_, levels_);
}

void Index::remove(void *node, unsigned level)
{
    if (node == nullptr)
        return;
    if (level == 0) {
        delete static_cast<Table *>(node);
        return;
    }
    for (auto &bucket : static_cast<Node *>(node)->bucket)
        remove(bucket, level - 1);
    delete static_cast<Node *>(node);
}

Table &Index::make(uint64_t offset, unsigned shift)
{
    std::atomic<void *> *bucket = &skip_;
    for (unsigned level = levels_;; level--) {
        void *node = bucket->load(std::memory_order_acquire);
        if (node == nullptr) {
            void *fresh = level == 0 ? static_cast<void *>(new Table(
                                           offset >> LARGEST_SHIFT << LARGEST_SHIFT, shift))
                                     : new Node;
            if (bucket->compare_exchange_strong(node, fresh))
                node = fresh;
            else
                remove(fresh, level); /* another thread was faster */
        }
        if (level == 0)
            return *static_cast<Table *>(node);
        bucket = &static_cast<Node *>(node)->bucket[digit(offset, level)];
    }
}

} // namespace engine::hybrid
