;;;; Builds trees whose nodes know their parents, counts them and drops them: only the collector can
;;;; take them back. See README.md in this folder.

(load (merge-pathnames "../tasks.lisp" *load-truename*))

(declaim (optimize (speed 2)))

(defstruct node
  parent
  (left nil :type (or null node))
  (right nil :type (or null node)))

(defun grow (parent depth)
  (declare (type fixnum depth))
  (let ((node (make-node :parent parent)))
    (when (plusp depth)
      (setf (node-left node) (grow node (1- depth))
            (node-right node) (grow node (1- depth))))
    node))

(declaim (ftype (function (node) fixnum) size))
(defun size (node)
  (if (node-left node)
      (+ 1 (size (node-left node)) (size (node-right node)))
      1))

(defun main ()
  (parse-mode)
  (let* ((work (number-argument "--work" 300))
         (depth (number-argument "--size" 11))
         (heap (number-argument "--heap" 500000))
         (kept (loop for number below heap collect (list number))))
    (flet ((grow-and-drop (number)
             (declare (ignore number))
             (size (grow nil depth))))
      (measure work (lambda () (reduce #'+ (map-tasks #'grow-and-drop work)))))
    (assert (= (length kept) heap))))
