"""DETECTIONS -> FILES AND PICTURES: jsonl, csv, COCO, npy, video, mcap, rrd."""
